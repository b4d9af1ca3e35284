"""The names of a run's processes, ``rank-3``, ``monitor-0``, ``status``, ``metrics``, after which logs are named."""

from __future__ import annotations

#: The process that serves the run's status. It may fail; the run goes on.
STATUS = "status"
#: The process that serves the run's metrics. It may fail as well.
METRICS = "metrics"


def rank_name(rank: int) -> str:
    """The process that trains as this rank."""
    return f"rank-{rank}"


def monitor_name(worker: int) -> str:
    """The network monitor of this worker."""
    return f"monitor-{worker}"


def is_rank(name: str) -> bool:
    """Whether the process trains."""
    return name.startswith("rank-")


def is_monitor(name: str) -> bool:
    """Whether the process measures the network."""
    return name.startswith("monitor-")


def kind_and_number(name: str) -> tuple[str, int]:
    """``rank-10`` as ``("rank", 10)``, so that rank 2 comes before rank 10."""
    kind, _, number = name.partition("-")
    return kind, int(number or 0)


def label(name: str) -> str:
    """The process as a message to the user calls it."""
    kind, number = kind_and_number(name)
    names = {"rank": f"rank {number}", "monitor": f"the monitor of worker {number}", METRICS: "the metrics server"}
    return names.get(kind, "the status server")
