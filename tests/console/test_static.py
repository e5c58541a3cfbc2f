"""How the console's files are served."""

from __future__ import annotations

import gzip
import re

from management_http import Http


def nobody(api: Http) -> Http:
    return Http(api.port, 0, user="")


def test_files_are_kept_for_ever_and_the_page_is_asked_for_again(api: Http) -> None:
    http = nobody(api)
    page = http("GET", "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert http("GET", "/", headers={"if-none-match": page.headers["etag"]}).status == 304
    script = re.search(r'src="(/console/\w+/app\.js)"', page.octets.decode())
    assert script
    plain = http("GET", script[1])
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    zipped = http("GET", script[1], headers={"accept-encoding": "gzip"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.octets) == plain.octets
    assert http("HEAD", script[1]).octets == b""


def test_no_script_or_style_comes_from_elsewhere(api: Http) -> None:
    page = nobody(api)("GET", "/")
    rules = page.headers["content-security-policy"]
    assert "default-src 'none'" in rules
    assert "script-src 'self';" in rules
    assert "style-src 'self';" in rules
    assert "unsafe" not in rules
    assert page.headers["x-content-type-options"] == "nosniff"
    assert not re.search(rb"https?://|<style|style=|<script>", page.octets)


def test_only_files_of_the_console_are_served(api: Http) -> None:
    http = nobody(api)
    for path in (
        "/index.html",
        "/console/",
        "/console/app.js",
        "/../app.py",
        "/console/../../app.py",
        "/console/%2e%2e/%2e%2e/app.py",
        "//etc/passwd",
    ):
        assert http("GET", path).status == 404, path
    assert http("POST", "/").status in (404, 405)


def test_the_browser_is_not_made_to_ask_for_a_password(api: Http) -> None:
    http = nobody(api)
    assert "www-authenticate" in http("GET", "/api/session").headers
    asked = http("GET", "/api/session", headers={"x-flintmq-console": "1"})
    assert asked.status == 401
    assert "www-authenticate" not in asked.headers
