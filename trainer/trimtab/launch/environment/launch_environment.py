"""The environment variables that a launcher sets and a session reads, named in this one place.

``trimtab run`` sets them on one machine, the operator sets the same ones on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.names import KEEPERS_VARIABLE


@dataclass(frozen=True)
class LaunchEnvironment:
    """One trainer process's knowledge of the job that it belongs to."""

    rank: int
    num_ranks: int
    local_rank: int
    """Rank within the worker."""
    num_local_ranks: int
    master_address: str
    """The address at which rank 0 listens until all ranks have met."""
    master_port: int
    interface: str
    """The network device that gradients cross."""
    job: Path
    """The resolved TrainingJob, as JSON."""
    run_directory: Path
    """The folder of rank 0's metrics and decisions (``docs/reference/run-directory.md``)."""
    monitor: str
    """``host:port`` of this worker's network monitor."""
    seed: int
    secret: str = field(repr=False)
    """The secret by which ranks on one machine know each other; empty in a pod, where they have certificates."""
    keepers: tuple[str, ...] = ()
    """Address of each worker's keeper of checkpoints in memory; none where the job asks for none."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> LaunchEnvironment | None:
        """Read what the launcher has set; None where no launcher of ours did (no ``TRIMTAB_MONITOR``).

        Raises:
            UserError: Names the variable that is missing or not a number.
        """
        if "TRIMTAB_MONITOR" not in environ:
            return None
        return cls(
            rank=_number(environ, "RANK"),
            num_ranks=_number(environ, "TRIMTAB_WORLD_SIZE"),
            local_rank=_number(environ, "LOCAL_RANK"),
            num_local_ranks=_number(environ, "LOCAL_WORLD_SIZE"),
            master_address=_text(environ, "MASTER_ADDR"),
            master_port=_number(environ, "MASTER_PORT"),
            interface=_text(environ, "GLOO_SOCKET_IFNAME"),
            job=Path(_text(environ, "TRIMTAB_JOB")),
            run_directory=Path(_text(environ, "TRIMTAB_RUN_DIR")),
            monitor=_text(environ, "TRIMTAB_MONITOR"),
            seed=_number(environ, "TRIMTAB_SEED"),
            secret=_text(environ, "TRIMTAB_SECRET"),
            keepers=tuple(filter(None, environ.get(KEEPERS_VARIABLE, "").split(","))),
        )

    @property
    def worker(self) -> int:
        """Number of the worker that this process belongs to."""
        return self.rank // max(1, self.num_local_ranks)

    def variables(self) -> dict[str, str]:
        """Return the variables that `read` reads."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.num_ranks),  # for scripts and frameworks, some of which remove it: Lightning does
            "TRIMTAB_WORLD_SIZE": str(self.num_ranks),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.num_local_ranks),
            "NODE_RANK": str(self.worker),  # for scripts; a session does not read it
            "MASTER_ADDR": self.master_address,
            "MASTER_PORT": str(self.master_port),
            "GLOO_SOCKET_IFNAME": self.interface,
            "TRIMTAB_JOB": str(self.job),
            "TRIMTAB_RUN_DIR": str(self.run_directory),
            "TRIMTAB_MONITOR": self.monitor,
            "TRIMTAB_SEED": str(self.seed),
            "TRIMTAB_SECRET": self.secret,
            KEEPERS_VARIABLE: ",".join(self.keepers),
        }


def _text(environ: Mapping[str, str], name: str) -> str:
    try:
        return environ[name]
    except KeyError:
        raise UserError(
            "is not set although TRIMTAB_MONITOR is; start training with `trimtab run`, or unset TRIMTAB_MONITOR",
            field=name,
        ) from None


def _number(environ: Mapping[str, str], name: str) -> int:
    text = _text(environ, name)
    try:
        return int(text)
    except ValueError:
        raise UserError("must be a whole number", field=name, value=text) from None
