#!/bin/sh
# What the tests need and PyPI does not have: AMQP clients for tests/interop, RabbitMQ for tests/differential,
# a browser for tests/console, and promtool for tests/management.
# Installs it where it can (root, apt-get), else says what to install. Status 1 if something is still missing.
set -eu

lacking=""
command -v amqp-publish > /dev/null || lacking="$lacking amqp-tools"
ls /usr/lib/python3/dist-packages/amqplib/__init__.py > /dev/null 2>&1 || lacking="$lacking python3-amqplib"
command -v node > /dev/null || lacking="$lacking nodejs"
command -v npm > /dev/null || lacking="$lacking npm"
ls /usr/lib/rabbitmq/bin/rabbitmq-server > /dev/null 2>&1 || lacking="$lacking rabbitmq-server"
command -v chromium > /dev/null || lacking="$lacking chromium"
command -v promtool > /dev/null || lacking="$lacking prometheus"

if [ -z "$lacking" ]; then
    echo "interop-deps: all there"
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "interop-deps: missing:$lacking"
    echo "On Debian or Ubuntu: sudo apt-get install$lacking"
    exit 1
fi
echo "interop-deps: installing$lacking"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # the list is meant to be split
apt-get install -y -qq --no-install-recommends $lacking
