"""What the operating system refused, in words that say what to do about it."""

from __future__ import annotations

import errno

_ADVICE = {
    errno.EADDRINUSE: "another program or another setting has this port; stop the program, or choose a port "
    "with --port or --management-port",
    errno.EADDRNOTAVAIL: "this machine has no such address; give one that it has with --host",
    errno.EACCES: "this user may not have the port; choose one above 1023",
    errno.EEXIST: "a file is in the way; choose a directory with --data",
    errno.EISDIR: "a directory is in the place of a file; move it away",
    errno.ENOTDIR: "a file is in the way; choose a directory with --data",
    errno.EROFS: "nothing can be written there; choose another directory with --data",
    errno.EMFILE: "the limit on open files is too low; raise it: ulimit -n, or LimitNOFILE= of a service",
    errno.ENOSPC: "the disk is full; make room, or choose another directory with --data",
}
_ADVICE_OF_FILES = _ADVICE | {
    errno.EACCES: "this user has no right to it; change its owner or mode, or name another one",
}


def explain(error: OSError) -> str:
    """One line: what failed, and what to do where we know it."""
    said = error.strerror or str(error) or type(error).__name__
    advice = (_ADVICE if error.filename is None else _ADVICE_OF_FILES).get(error.errno or 0)
    if error.filename is not None:
        said = f"{error.filename}: {said}"
    line = f"{said} ({advice})" if advice else said
    return " ".join(line.split())
