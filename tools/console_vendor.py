"""Fetches the console's libraries from npm: `python tools/console_vendor.py`, seldom, by hand.

What is fetched lies in src/flintmq/management/console/vendor with its licences, so that neither a build nor a
broker needs npm. Bare imports become relative ones: the page has no import map, which its
Content-Security-Policy would refuse.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parents[1] / "src/flintmq/management/console/vendor"
# Package, version, and its files: where each comes from and what it is called here.
PACKAGES = [
    (
        "preact",
        "11.2.0",
        {
            "dist/preact.mjs": "preact.js",
            "hooks/dist/hooks.mjs": "preact-hooks.js",
            "LICENSE": "preact.LICENSE",
        },
    ),
    ("htm", "3.1.1", {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"}),
    (
        "uplot",
        "1.6.32",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"},
    ),
]


def fetched(package: str, version: str, folder: Path) -> Path:
    subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True)
    with tarfile.open(folder / f"{package}-{version}.tgz") as archive:
        archive.extractall(folder / package, filter="data")
    return folder / package / "package"


def shown_here(text: str) -> str:
    text = text.replace('from"preact"', 'from"./preact.js"')
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return "\n".join(lines) + "\n"


def main() -> None:
    VENDOR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for package, version, files in PACKAGES:
            found = fetched(package, version, Path(folder))
            for source, name in files.items():
                (VENDOR / name).write_text(shown_here((found / source).read_text()))
    versions = "\n".join(f"{package} {version}" for package, version, _ in PACKAGES)
    (VENDOR / "VERSIONS").write_text(f"{versions}\n")


if __name__ == "__main__":
    main()
