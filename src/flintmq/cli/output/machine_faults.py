"""What the operating system refused, in words that say what to do about it."""

from __future__ import annotations

import errno

_ADVICE = {
    errno.EADDRINUSE: "another program or another setting has this port; stop the program, or choose a port "
    "with --port or --management-port",
    errno.EADDRNOTAVAIL: "this machine has no such address; give one that it has with --host",
    errno.EACCES: "no permission; choose a port above 1023, or a directory that this user may write to",
    errno.EEXIST: "a file is in the way; choose a directory with --data",
    errno.EISDIR: "a directory is in the place of a file; move it away",
    errno.ENOTDIR: "a file is in the way; choose a directory with --data",
    errno.EROFS: "nothing can be written there; choose another directory with --data",
    errno.EMFILE: "the limit on open files is too low; raise it: ulimit -n, or LimitNOFILE= of a service",
    errno.ENOSPC: "the disk is full; make room, or choose another directory with --data",
}


def explain(error: OSError) -> str:
    """One line: what failed, and what to do where we know it."""
    said = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        said = f"{error.filename}: {said}"
    advice = _ADVICE.get(error.errno or 0)
    line = f"{said} ({advice})" if advice else said
    return " ".join(line.split())
