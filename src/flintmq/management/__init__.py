"""The HTTP API: RabbitMQ's management API in shape and meaning, more of our own, and metrics.

    browser, rabbitmqadmin, Prometheus  --HTTP-->  this process  --AMQP, internal-->  the broker

It is a process of its own, which server/process/management_process.py starts: neither JSON nor HTTP costs the
broker's loop.
Begin with app.py, which names the routes; broker_link.py is the way to the broker, snapshots.py what is known
of it, shapes/ how that looks in JSON.
"""
