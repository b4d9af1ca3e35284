"""The place of a process among the ranks, by the variables that each launcher other than ours sets.

torchrun (and whatever sets its variables: ``accelerate launch``, Lightning, a script by hand), Slurm's ``srun``,
OpenMPI's ``mpirun``, and the ``mpiexec`` of MPICH and Intel MPI.
"""

from __future__ import annotations

import os
import re
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import psutil
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
    """Variables that tell one job of this launcher from another, equal in all processes of the job."""


#: The innermost first: torchrun may be started by srun or mpirun, whose ranks are then its agents, and mpirun starts
#: daemons of its own by srun.
_LAUNCHERS = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    # In a batch script, outside of srun, SLURM_NTASKS is set as well; the counts of a step are not.
    _Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)


def ranks_of(environ: Mapping[str, str]) -> Ranks | None:
    """Find this process's place among several, by the innermost launcher that says how many there are.

    Returns:
        The place; None where that launcher says one, or no launcher says anything.

    Raises:
        UserError: Names a variable that is missing beside others, or is not the number of a rank.
    """
    launcher = next(iter(_that_say(environ)), None)
    if launcher is not None:
        num_ranks = _number(environ, launcher.size)
        if num_ranks is None or num_ranks == 1:
            return None
        rank = _number(environ, launcher.rank)
        if rank is None:
            raise UserError(
                f"is not set although {launcher.size} is; set it to this process's rank", field=launcher.rank
            )
        if not 0 <= rank < num_ranks:
            raise UserError(
                f"is not one of the {num_ranks} ranks that {launcher.size} says; number them from 0",
                field=launcher.rank,
                value=str(rank),
            )
        return Ranks(launcher.name, rank, num_ranks, _number(environ, launcher.local_rank))
    for candidate in _LAUNCHERS:
        said = environ.get(candidate.rank, "")
        if candidate.size not in environ and said.isdecimal() and int(said) > 0:
            raise UserError(
                f"is not set although {candidate.rank} is {said}; set it to how many there are", field=candidate.size
            )
    return None


def describe_choice(environ: Mapping[str, str]) -> str | None:
    """Say which variable `ranks_of` went by, and which ones it ignored; None where no launcher says anything of ranks.

    Args:
        environ: Variables that `ranks_of` accepts.
    """
    launchers = _that_say(environ)
    if not launchers:
        return None
    chosen, *others = launchers
    size = _number(environ, chosen.size)
    ignored = [launcher for launcher in others if _number(environ, launcher.size) != size]
    if size == 1 and not ignored:
        return None
    source = f"{chosen.size}={size}"
    choice = f"this process trains alone ({source})" if size == 1 else f"joins {size} ranks of {chosen.name} ({source})"
    if not ignored:
        return choice
    names = ", ".join(f"{launcher.size}={environ[launcher.size]} of {launcher.name}" for launcher in ignored)
    remedy = f"; to join those ranks, unset {chosen.size}" if size == 1 else ""
    return f"{choice}; ignores {names}{remedy}"


def _that_say(environ: Mapping[str, str]) -> list[_Launcher]:
    """Return the launchers that say how many ranks there are, the innermost first."""
    saying = [launcher for launcher in _LAUNCHERS if environ.get(launcher.size)]
    srun, mpiexec = (next(launcher for launcher in _LAUNCHERS if launcher.name == name) for name in ("srun", "mpiexec"))
    same = all(environ.get(getattr(srun, name)) == environ.get(getattr(mpiexec, name)) for name in ("rank", "size"))
    if same and mpiexec in saying:  # `srun --mpi=pmi2` sets these too
        saying.remove(mpiexec)
    return saying


def rendezvous_endpoint(environ: Mapping[str, str], ranks: Ranks) -> tuple[str, int]:
    """Return where the ranks meet rank 0: MASTER_ADDR and MASTER_PORT, or what the launcher tells.

    Raises:
        UserError: Neither says it.
    """
    launcher = next(candidate for candidate in _LAUNCHERS if candidate.name == ranks.launcher)
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


def torchrun_job(environ: Mapping[str, str]) -> str:
    """Name the torchrun agent that started this process, the same in all attempts of its job; empty under others."""
    if "TORCHELASTIC_RUN_ID" not in environ:
        return ""
    try:
        agent = psutil.Process(os.getppid())
        return f"{environ['TORCHELASTIC_RUN_ID']} {socket.gethostname()} {agent.pid} {agent.create_time()}"
    except psutil.Error:  # it runs in another process namespace
        return ""


def first_of_hostlist(nodes: str) -> str:
    """Return the first host of Slurm's short form: ``node[07-09,12],gpu1`` begins with ``node07``."""
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
