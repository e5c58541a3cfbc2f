"""A lock on a file, held by an open handle: the system lets go of it when the process ends, however.

fcntl     the whole file, shared or alone
msvcrt    Windows: one octet far behind all that is ever written, as others cannot read what is locked;
          always alone
"""

from __future__ import annotations

import errno
import os
import sys

# Behind everything: a lock file holds the number of a process.
LOCKED_AT = 1 << 30

if sys.platform == "win32":
    import msvcrt

    def try_lock(handle: int, shared: bool = False) -> bool:
        """Whether the lock is ours now; False if another process has it."""
        os.lseek(handle, LOCKED_AT, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as failure:
            if failure.errno in (errno.EACCES, errno.EDEADLK, errno.EAGAIN):
                return False
            raise
        return True

else:
    import fcntl

    def try_lock(handle: int, shared: bool = False) -> bool:
        """Whether the lock is ours now; False if another process has it."""
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as failure:
            if failure.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True
