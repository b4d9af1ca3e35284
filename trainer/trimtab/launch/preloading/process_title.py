"""Shows a process under another command line and environment, as `ps` and ``/proc/PID/environ`` have them.

A fork keeps those of the process that it forks from; only the kernel can point to others (PR_SET_MM_MAP).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.sbrk.restype = ctypes.c_void_p
#: What the kernel points to, for as long as the process lives.
_shown: list[object] = []


class _MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map`` of ``linux/prctl.h``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data", "start_brk")),
        *((name, ctypes.c_uint64) for name in ("brk", "start_stack", "arg_start", "arg_end", "env_start", "env_end")),
        ("auxv", ctypes.c_uint64),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_int32),
    )


#: Numbers of the fields of ``/proc/self/stat`` (proc(5)) that stay as they are.
_STAT = {"start_code": 26, "end_code": 27, "start_stack": 28, "start_data": 45, "end_data": 46, "start_brk": 47}


def show(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Show this process as one that runs ``argv``; return whether the kernel does so. A refusal changes nothing."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    text = ctypes.create_string_buffer(words + variables)
    fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
    start = ctypes.addressof(text)
    middle, end = start + len(words), start + len(words) + len(variables)
    memory = _MemoryMap(arg_start=start, arg_end=middle, env_start=middle, env_end=end, exe_fd=-1)
    for name, number in _STAT.items():
        setattr(memory, name, int(fields[number - 3]))
    memory.brk = _LIBC.sbrk(0)
    _shown.append(text)
    return bool(_LIBC.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(memory), ctypes.sizeof(memory), 0) == 0)
