"""The number of processors that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

#: A container's limit: control groups version 2, as ``quota period`` or ``max period``.
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
#: Version 1: the same in two files.
_QUOTA, _PERIOD = (Path(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))


def usable_cpus() -> int:
    """Return the processors of this process's cpuset, within its container's limit, rounded up; at least one."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = _container_limit()
    return cpus if limit is None else max(1, min(cpus, math.ceil(limit)))


def _container_limit() -> float | None:
    try:
        quota, period = _CPU_MAX.read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = _QUOTA.read_text().strip(), _PERIOD.read_text().strip()
        except OSError:
            return None
    return int(quota) / int(period) if quota.isdecimal() and int(period) > 0 else None
