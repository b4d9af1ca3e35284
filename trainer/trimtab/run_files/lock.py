"""The lock of a run's directory: one launcher at a time, whose process id stands in the lock's file."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trimtab_api.errors import UserError

#: Errors of file systems that know no locks.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class InUseError(UserError):
    """Another launcher uses the directory."""


@contextmanager
def hold(lock: Path, holder: str = "") -> Iterator[None]:
    """Lock the file for as long as the context lasts; its directory is made where there is none.

    Args:
        lock: The file to lock.
        holder: Who uses it, as another is told; this process by its number unless it is given.

    Raises:
        InUseError: Names who uses it.
        UserError: It cannot be made or written.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            file.truncate(0)
            file.write(f"{holder or os.getpid()}\n")
            file.flush()
            locked = os.dup(file.fileno())  # the same lock, whatever becomes of the file's name
            owner = os.getpid()
    except BlockingIOError:
        other = lock.read_text().strip()
        remedy = "wait for it to end"
        if other.isdecimal():
            other, remedy = f"the run of process {other}", f"{remedy} or `kill {other}`"
        raise InUseError(
            f"is in use by {other}; {remedy}, or name another directory", field="--out", value=str(lock.parent)
        ) from None
    except OSError as error:
        raise not_writable(lock.parent, error) from None
    try:
        yield
    finally:
        if os.getpid() == owner:  # a forked child shares the lock, and may outlive this process
            with suppress(OSError):
                fcntl.flock(locked, fcntl.LOCK_UN)
        os.close(locked)


def lost_holder(lock: Path) -> str | None:
    """Return the id of the process that held the lock, if it is gone; None while it lives, or is not known."""
    try:
        holder = lock.read_text().strip()
        os.kill(int(holder), 0)
    except ProcessLookupError:  # or it lives in another container: then its lock does
        return holder if _can_be_locked(lock) else None
    except (OSError, ValueError, OverflowError):
        return None
    return None


def is_held(lock: Path) -> bool:
    """Return whether a process holds the lock now."""
    try:
        return lock.exists() and not _can_be_locked(lock)
    except OSError:  # no directory could have such a name
        return False


def not_writable(directory: Path, error: OSError) -> UserError:
    """Return what to raise where the run's directory cannot be written."""
    return UserError(
        f"cannot be written ({error.strerror}); name another directory", field="--out", value=str(directory)
    )


def _can_be_locked(lock: Path) -> bool:
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
