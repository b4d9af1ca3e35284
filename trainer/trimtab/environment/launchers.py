"""What launchers other than ours tell a process of its place among the ranks, by the variables that each of them sets.

torchrun (and whatever sets its variables: ``accelerate launch``, Lightning, a script by hand), Slurm's ``srun``,
OpenMPI's ``mpirun``, and the ``mpiexec`` of MPICH and Intel MPI.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_api.errors import UserError

#: torch's own, where nobody says otherwise.
DEFAULT_PORT = 29500
#: Ports for ranks that meet without being told where; below those that kernels give to outgoing connections.
_FIRST_PORT, _NUM_PORTS = 20000, 10000


@dataclass(frozen=True)
class Ranks:
    """One process's place."""

    launcher: str
    rank: int
    num_ranks: int
    local_rank: int | None
    """Rank on this host; None where the launcher does not say."""


@dataclass(frozen=True)
class _Launcher:
    """The variables of a launcher; its ``size`` tells whether it started this process."""

    name: str
    rank: str
    size: str
    local_rank: str
    of_job: tuple[str, ...] = ()
    """What tells one job of this launcher from another, equal in all processes of the job."""


#: torchrun's come first: it may itself have been started by srun or mpirun, whose ranks are then its agents.
_LAUNCHERS = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    # In a batch script, outside of srun, SLURM_NTASKS is set as well; the counts of a step are not.
    _Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


def ranks_of(environ: Mapping[str, str]) -> Ranks | None:
    """This process's place among several; None where no launcher says that there are several.

    Raises `UserError` naming a variable that is missing beside others, or is no number of a rank.
    """
    for each in _LAUNCHERS:
        num_ranks = _number(environ, each.size)
        if num_ranks is None or num_ranks == 1:
            continue
        rank = _number(environ, each.rank)
        if rank is None:
            raise UserError(f"is not set although {each.size} is; set it to this process's rank", field=each.rank)
        if not 0 <= rank < num_ranks:
            raise UserError(
                f"is not one of the {num_ranks} ranks that {each.size} says; number them from 0",
                field=each.rank,
                value=str(rank),
            )
        return Ranks(each.name, rank, num_ranks, _number(environ, each.local_rank))
    for each in _LAUNCHERS:
        said = environ.get(each.rank, "")
        if each.size not in environ and said.isdecimal() and int(said) > 0:
            raise UserError(f"is not set although {each.rank} is {said}; set it to how many there are", field=each.size)
    return None


def meeting_point(environ: Mapping[str, str], ranks: Ranks) -> tuple[str, int]:
    """Address and port at which the ranks meet rank 0: MASTER_ADDR and MASTER_PORT, or what the launcher tells.

    Raises `UserError` where neither says it.
    """
    launcher = next(each for each in _LAUNCHERS if each.name == ranks.launcher)
    port = _number(environ, "MASTER_PORT")
    if port is None:
        job = " ".join(environ[name] for name in launcher.of_job if name in environ)
        port = _FIRST_PORT + zlib.crc32(job.encode()) % _NUM_PORTS if job else DEFAULT_PORT
    return environ.get("MASTER_ADDR") or _first_host(environ, ranks), port


def _first_host(environ: Mapping[str, str], ranks: Ranks) -> str:
    if ranks.launcher == "srun" and (nodes := environ.get("SLURM_STEP_NODELIST")):
        return first_of_hostlist(nodes)
    if ranks.launcher == "mpirun" and environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(ranks.num_ranks):
        return "127.0.0.1"
    exported = " (mpirun -x MASTER_ADDR=HOST)" if ranks.launcher == "mpirun" else ""
    raise UserError(
        f"is not set, and {ranks.launcher} does not say where rank 0 is; set it to an address of its host{exported}",
        field="MASTER_ADDR",
    )


def first_of_hostlist(nodes: str) -> str:
    """The first host of Slurm's short form: ``node[07-09,12],gpu1`` begins with ``node07``."""
    head = re.match(r"[^,\[]*(\[[^\]]*\])?[^,\[]*", nodes)
    assert head is not None, "every part of it may be empty"
    return re.sub(r"\[([^,\-\]]*)[^\]]*\]", r"\1", head[0])


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise UserError("must be a whole number", field=name, value=text) from None
