"""Known vulnerabilities in the packages that an environment has installed, by the advisories of osv.dev.

    python tools/dependency_audit.py     status 0: none known, or not asked, which is told; 1: some, listed

The advisories are on the network. Where they cannot be reached the audit says that it has not run: a machine
without the network must be able to check all else, and nobody shall take silence for an answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from importlib import metadata
from typing import Any

URL = "https://api.osv.dev/v1/querybatch"
TIMEOUT_S = 15.0
ANSWER_OCTETS_MAX = 16 * 2**20
# The project itself, which has no advisories of its own.
OWN = frozenset(("flintmq",))


def installed() -> list[tuple[str, str]]:
    """Names and versions of all packages of this environment."""
    found = {(each.metadata["Name"], each.version) for each in metadata.distributions()}
    return sorted((name, version) for name, version in found if name and name.lower() not in OWN)


def advisories(url: str, packages: list[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """The identifiers of advisories, by package; raises OSError or ValueError if nobody can be asked."""
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in packages
    ]
    asked = urllib.request.Request(
        url, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        document: Any = json.loads(answer.read(ANSWER_OCTETS_MAX))
    results = document["results"]
    if len(results) != len(packages):
        raise ValueError(f"{len(results)} answers to {len(packages)} questions")
    return {
        package: sorted(each["id"] for each in result["vulns"])
        for package, result in zip(packages, results, strict=True)
        if result.get("vulns")
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Look for known vulnerabilities in installed packages.")
    parser.add_argument("--url", default=URL, help=f"where advisories are asked for ({URL})")
    options = parser.parse_args(argv)
    packages = installed()
    try:
        found = advisories(options.url, packages)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"dependency audit: NOT RUN, {options.url} cannot be asked: {error}")
        return 0
    for (name, version), identifiers in found.items():
        print(f"dependency audit: {name} {version}: {', '.join(identifiers)}")
    if found:
        print(f"dependency audit: {len(found)} of {len(packages)} packages have known vulnerabilities")
        return 1
    print(f"dependency audit: no known vulnerabilities in {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
