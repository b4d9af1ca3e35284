"""The connection of a process to its job, under any launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab_api.rpc.certificates import Certificates
from trimtab_api.trainingjob import TrainingJob

from trimtab.run_files.recorder import Recorder
from trimtab.transport.group import Group


@dataclass(frozen=True)
class JobConnection:
    """One rank among all of its job."""

    group: Group
    job: TrainingJob
    recorder: Recorder
    monitor: str | None
    """``HOST:PORT`` of this host's network monitor; None where the network is not measured."""
    link_slowness: tuple[float, ...] = (1.0,)
    """Slowness of each link between the ranks (`ModelFacts.link_slowness`)."""
    certificates: Certificates | None = None
    """Certificates for calls of the monitor; None: those of the environment, if any."""
    keepers: tuple[str, ...] = ()
    """Address of each worker's keeper of checkpoints in memory."""
    worker: int = 0
    """Number of this process's worker."""
    leave: Callable[[], None] = lambda: None
    """Ends what was started for the job on this host; called when the session is closed."""
