"""Compile the relay once per version of its source."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.input_files import private_path_error

SOURCE = Path(__file__).with_name("relay.c")
COMPILER = "cc"
COMPILE_TIMEOUT = 60.0


def relay_path() -> Path:
    """Return where the compiled relay lies, or will: in the user's cache, named by a hash of its source.

    Raises:
        UserError: The user has no home directory, and ``XDG_CACHE_HOME`` is not set.
    """
    digest = hashlib.sha256(SOURCE.read_bytes() + platform.machine().encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not cache.startswith("/"):
        raise UserError(
            "is not set, and this user has no home directory; set it to a directory", field="XDG_CACHE_HOME"
        )
    return Path(cache) / "trimtab" / f"relay-{digest}"


def build_relay() -> Path:
    """Find the compiled relay, or compile it now.

    Raises:
        UserError: the compiler fails, or others may change what would be run as this user, who is root.
    """
    target = relay_path()
    if target.exists() or target.is_symlink():
        _check_private(target)
        return target
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(target.parent)
        return _compile(target)
    except OSError as error:
        raise UserError(
            f"cannot be written ({error.strerror}); set XDG_CACHE_HOME to a directory that can",
            field="the emulator's cache",
            value=str(target.parent),
        ) from None


def _check_private(path: Path) -> None:
    if error := private_path_error(path):
        raise UserError(
            f"{error}, and the relay there is run as this user; remove it, or set XDG_CACHE_HOME to a directory that"
            " this user alone may write",
            field="the emulator's relay",
            value=str(path),
        )


def _compile(target: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        output = Path(folder) / "relay"
        argv = [COMPILER, "-std=gnu11", "-O2", "-o", str(output), str(SOURCE)]
        try:
            compiled = subprocess.run(
                argv, capture_output=True, text=True, timeout=COMPILE_TIMEOUT, check=False, start_new_session=True
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _cannot_build(str(error)) from None
        if compiled.returncode != 0:
            raise _cannot_build(next(iter(compiled.stderr.splitlines()), f"exit code {compiled.returncode}"))
        output.chmod(0o700)  # whatever the umask
        # Atomic, so that two processes that compile at once both end with a whole file.
        output.rename(target)
    return target


def _cannot_build(reason: str) -> UserError:
    remedy = "the network emulator's relay does not compile; install the packages gcc and libc6-dev"
    return UserError(f"{remedy} ({reason})", field=COMPILER)
