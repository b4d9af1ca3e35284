"""An imitation of the kernels that users have: files and IPv6 that this kernel offers are hidden from a command.

As a script, it hides them and then becomes the command. It has to run inside the network namespace of the command: the
kernel shows a mount over ``/proc/sys/net`` only to the namespace in which it was made.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import struct
import sys
from pathlib import Path

#: Folders that a network namespace other than the first lacks: before about Linux 6.11, and with ``ipv6.disable=1``.
HIDDEN = ("/proc/sys/net/core", "/proc/sys/net/ipv6")

_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_REC, _MS_PRIVATE = 1, 0x4000, 1 << 18
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_AF_INET6, _EAFNOSUPPORT = 10, 97
#: The number of ``socket`` on each machine.
_SYS_SOCKET = {"x86_64": 41, "aarch64": 198}


def command(argv: list[str]) -> list[str]:
    """The command that runs ``argv`` as on an older kernel; it needs root."""
    return [sys.executable, "-I", "-S", __file__, *argv]


def put_before_nsenter(folder: Path) -> str:
    """Write an ``nsenter`` that hides the files in each namespace that it enters; returns the PATH to find it by."""
    enter = folder / "nsenter"
    become = f'exec {shutil.which("nsenter")} "$net" -- {shlex.join(command([]))} "$@"'
    enter.write_text(f"#!/bin/sh\nnet=$1; shift 2\n{become}\n")
    enter.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def _hide() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS))
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    for path in HIDDEN:
        if os.path.isdir(path):
            _check(libc.mount(b"none", path.encode(), b"tmpfs", _MS_RDONLY, None))


def _refuse_ipv6() -> None:
    """Let ``socket(AF_INET6, ...)`` fail, as it does with ``ipv6.disable=1``."""
    load, jump_if_equal, answer = 0x20, 0x15, 0x06
    number, first_argument = 0, 16  # offsets in struct seccomp_data
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (load, 0, 0, number),
            (jump_if_equal, 0, 3, _SYS_SOCKET[os.uname().machine]),
            (load, 0, 0, first_argument),
            (jump_if_equal, 0, 1, _AF_INET6),
            (answer, 0, 0, 0x00050000 | _EAFNOSUPPORT),
            (answer, 0, 0, 0x7FFF0000),
        )
    )
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    _hide()
    _refuse_ipv6()
    os.execvp(sys.argv[1], sys.argv[1:])
