"""`python -m flintmq.management SETTINGS`, which `flintmq serve` runs with the listening sockets.

The process ties its life to that of the broker before it loads anything large: while it lives, it holds the
port of the HTTP API.
"""

from __future__ import annotations

import json
import sys

from flintmq.management import parent_death


def main() -> None:
    settings = json.loads(sys.argv[1])
    parent_death.end_with(settings["control"])
    from flintmq.management.http_process import run

    run(settings)


if __name__ == "__main__":
    main()
