"""`python tools/build.py PIP ARGUMENTS`: pip, of which is shown what a build tells of its progress.

pip keeps to itself what a build says, or shows all of it. Here come the lines that count modules, and all the
others if pip fails.
"""

from __future__ import annotations

import re
import subprocess
import sys

# Cython counts what it translates like this, and setup.py what is compiled.
PROGRESS = re.compile(r"^\s*\[ *\d+/\d+\] ")


def main() -> int:
    said: list[str] = []
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--verbose", *sys.argv[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.append(line)
            if PROGRESS.match(line):
                print(line.strip(), flush=True)
    if pip.returncode != 0:
        sys.stdout.writelines(said)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main())
