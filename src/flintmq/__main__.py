"""`python -m flintmq`, the same as the `flintmq` command."""

import sys

from flintmq.cli import main

if __name__ == "__main__":
    sys.exit(main())
