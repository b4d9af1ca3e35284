"""A file of plain data and tensors: written whole or not at all, and checked before anything of it is used.

It is a file of `torch.save` with a checksum behind it, which `torch.load` does not mind.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import torch
from trimtab_api.errors import UserError

#: The suffix of a file that is being written.
PARTIAL = ".partial"
_MARK = b"\ntrimtab-sha256\n"
_DIGEST = hashlib.sha256
_TRAILER_SIZE = len(_MARK) + _DIGEST().digest_size
_CHUNK = 1 << 20
_PLAIN = "hand over plain data and tensors, such as float(x) for a number of NumPy's and vars(x) for a namespace"


def write(path: Path, state: Any, before_replacing: Callable[[], None] = lambda: None) -> None:
    """Write ``state`` to ``path``; it is on disk when this returns. Whatever was there before is there until then.

    Args:
        path: the file; its folder is made where there is none.
        state: plain data and tensors.
        before_replacing: called once the new file is on disk, beside the old one.

    Raises:
        UserError: the file cannot be written, or ``state`` holds what `read` would refuse.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            hashing = _HashingWriter(out)
            torch.save(state, cast("IO[bytes]", hashing))
            out.write(_MARK + hashing.digest.digest())
            out.flush()
            os.fsync(out.fileno())
        _check_can_be_read(partial)
        before_replacing()
        partial.replace(path)
        sync_folder(path.parent)
    except (OSError, RuntimeError) as error:  # torch's own writer says what failed as a RuntimeError
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise UserError(f"cannot be written ({why}); name a folder that can", file=str(path)) from error
    except (pickle.PickleError, AttributeError, TypeError) as error:  # pickle raises any of these
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise UserError(f"cannot keep what it was given ({error}); {_PLAIN}", file=str(path)) from error


def read(path: Path, remedy: str) -> Any:
    """Read what `write` wrote, onto the CPU, without running anything that it holds.

    Args:
        path: the file.
        remedy: what to do about a damaged file, for the message.

    Raises:
        UserError: the file is not there, cannot be read, was not written by `write`, or is damaged.
    """
    try:
        _check(path, remedy)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # it is as it was written
        raise UserError(f"holds {_refused(error)}, which is not read; {remedy}", file=str(path)) from error
    except FileNotFoundError:
        raise UserError("is not there; have all files where every rank finds them", file=str(path)) from None
    except OSError as error:  # the file may be whole
        raise UserError(f"cannot be read ({error.strerror}); let this process read it", file=str(path)) from error
    except UserError:
        raise
    except Exception as error:  # torch's unpickler raises anything for what another program wrote
        raise UserError(f"is damaged; {remedy}", file=str(path)) from error


def sync_folder(folder: Path) -> None:
    """Have the names in ``folder`` on disk."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _check(path: Path, remedy: str) -> None:
    """Raise `UserError` where the contents are not those that were written."""
    left, digest = path.stat().st_size - _TRAILER_SIZE, _DIGEST()
    with path.open("rb") as file:
        while left > 0 and (part := file.read(min(left, _CHUNK))):
            digest.update(part)
            left -= len(part)
        trailer = file.read()
    if not trailer.startswith(_MARK):
        raise UserError(
            f"is damaged, or was written by another version: it ends without a checksum; {remedy}", file=str(path)
        )
    if trailer != _MARK + digest.digest():
        raise UserError(f"is damaged: its checksum is not that of its contents; {remedy}", file=str(path))


def _check_can_be_read(path: Path) -> None:
    """Find out while training goes on what would be found out by the run that is to resume, which then never could.

    Raises:
        pickle.UnpicklingError: the file holds more than plain data and tensors.
    """
    try:
        torch.load(path, map_location="cpu", mmap=True, weights_only=True)  # mapped, so that no tensor is read
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(_refused(error)) from error
    except (OSError, RuntimeError):  # a file system that maps no files
        return


def _refused(error: pickle.UnpicklingError) -> str:
    """Return the class or function that torch does not load, by what it said."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return found[1] if found else str(error).partition("\n")[0]


class _HashingWriter:
    """The file object that `torch.save` writes to."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self.digest = out, _DIGEST()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._out.write(data)

    def flush(self) -> None:
        self._out.flush()
