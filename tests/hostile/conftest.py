"""Makes tools/conversation.py importable: a broker and its clients without sockets."""

from __future__ import annotations

import sys
from pathlib import Path

TOOLS = str(Path(__file__).resolve().parent.parent.parent / "tools")
if TOOLS not in sys.path:
    sys.path.insert(0, TOOLS)
