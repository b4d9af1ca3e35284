"""The command line and environment of the trainer container's processes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.errors import UserError
from trimtab_api.names import RESERVED_VARIABLES

from trimtab.launch.environment.launch_environment import LaunchEnvironment

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

#: Gradients are freed and allocated anew in every step. Left to itself, glibc gives each large one back to the kernel,
#: which must then zero the pages of the next: 15% of ResNet-18's forward and backward pass on a CPU.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}

#: The field of the container that says what to run.
_TRAINER = "spec.template.spec.containers[trainer]"


@dataclass(frozen=True)
class Process:
    """A process to start."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: Path | None = None
    """The working directory; None: the launcher's."""


def rank_environment(
    job: TrainingJob,
    worker: int,
    local_rank: int,
    *,
    master: tuple[str, int],
    interface: str,
    job_file: Path,
    run_directory: Path,
    monitor: str,
    secret: str,
    keepers: Sequence[str] = (),
) -> LaunchEnvironment:
    """Return what the ``local_rank``-th rank of a worker is told.

    Args:
        job: What is run.
        worker: Number of the worker.
        local_rank: Rank within the worker.
        master: Address and port of rank 0.
        interface: The network device that gradients cross.
        job_file: The resolved job, as JSON.
        run_directory: Where rank 0 writes its records.
        monitor: ``HOST:PORT`` of the worker's monitor.
        secret: What ranks on one machine know each other by; empty in a pod.
        keepers: Address of each worker's keeper of checkpoints in memory, if there are any.
    """
    spec = job.spec
    return LaunchEnvironment(
        rank=worker * spec.processes_per_worker + local_rank,
        num_ranks=spec.num_ranks,
        local_rank=local_rank,
        num_local_ranks=spec.processes_per_worker,
        master_address=master[0],
        master_port=master[1],
        interface=interface,
        job=job_file,
        run_directory=run_directory,
        monitor=monitor,
        seed=spec.seed,
        secret=secret,
        keepers=tuple(keepers),
    )


def trainer_process(
    job: TrainingJob,
    launch: LaunchEnvironment,
    worker: int,
    address: str,
    inherited: Mapping[str, str] = os.environ,
) -> Process:
    """Return one rank of a local run, whose worker has this ``address``. Raise `UserError` if it cannot start here."""
    given = {**container_environment(job, launch), **pod_environment(launch, worker, address)}
    environment = trainer_environment(launch, {**inherited, **given})
    directory = working_directory(job)
    argv = trainer_command(job, given)
    if trouble := why_not_runnable(argv[0], directory, environment["PATH"]):
        raise UserError(trouble, field=f"{_TRAINER}.command", value=argv[0])
    script = python_script(argv)
    if script is not None and not os.path.exists(os.path.join(directory, script)):
        raise UserError(
            f"no such file here; the command runs in {directory}, where workingDir or your shell put it",
            field=f"{_TRAINER}.command",
            value=script,
        )
    return Process(argv, environment, directory)


def trainer_command(job: TrainingJob, variables: Mapping[str, str]) -> list[str]:
    """Return the trainer container's command and arguments, expanded; ``python`` is the Python that runs this."""
    container = job.spec.trainer
    program, *rest = (expand(str(word), variables) for word in [*container["command"], *(container.get("args") or [])])
    if program in ("python", "python3"):
        program = sys.executable
    return [program, *rest]


def python_script(argv: Sequence[str]) -> str | None:
    """Return the file that a Python command runs; None where it runs a module or ``-c`` code, or is not Python."""
    if not os.path.basename(argv[0]).startswith("python"):
        return None
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-"):
            return word
        for flag in word[1:] or "-":
            if flag in "mc-":
                return None
            if flag in "WX":  # its value is the rest of this word, or else the next word
                if word.endswith(flag):
                    next(words, None)
                break
    return None


def why_not_runnable(program: str, directory: Path, search_path: str) -> str | None:
    """Return why a process in ``directory`` cannot run the program, and what to do; None where it can."""
    if os.sep in program:
        file = os.path.join(directory, program)
        if os.path.isdir(file):
            return "is a directory; name the program in it"
        if not os.path.exists(file):
            return f"no such file here; the command runs in {directory}"
        return interpreter_error(file, program) if os.access(file, os.X_OK) else f"is not executable; {_mend(program)}"
    if found := shutil.which(program, path=search_path):
        return interpreter_error(os.path.join(directory, found), found)
    if unfit := shutil.which(program, mode=os.F_OK, path=search_path):
        return f"is {unfit}, which is not executable; chmod +x it"
    if os.path.isfile(os.path.join(directory, program)):
        return f"no such program on the PATH, but a file of that name in {directory}; {_mend(f'./{program}')}"
    return f"no such program here; install it, or name it by its path (the command runs in {directory})"


def interpreter_error(file: str, program: str) -> str | None:
    """Return why Linux cannot execute a file whose mode allows it; None where it can, and for binary formats."""
    try:
        with open(file, "rb") as opened:
            start = opened.read(256)
    except OSError:  # executable, and not readable
        return None
    if start.startswith(b"#!"):
        words = os.fsdecode(start[2:].partition(b"\n")[0]).strip(" \t").split(" ")
        return None if os.path.exists(words[0]) else f"its first line names {words[0]!r}, which is not there; mend it"
    if b"\0" in start:
        return None
    return f"has no #! line, so Linux cannot execute it; {_by_interpreter(program)}, or begin it with such a line"


def _by_interpreter(script: str) -> str:
    return f"write [python, {script}]" if script.endswith(".py") else f"write [sh, {script}] for a shell script"


def _mend(script: str) -> str:
    return f"{_by_interpreter(script)}, or chmod +x it and write [{script}]"


def working_directory(job: TrainingJob) -> Path:
    """Return where the trainer runs: its container's workingDir, else where trimtab was called.

    Raises:
        UserError: There is no such directory on this machine.
    """
    given = job.spec.trainer.get("workingDir")
    if not given:
        return Path.cwd()
    if not os.path.isdir(given):
        raise UserError(
            "is no directory here; make it, or remove the field to run where you call trimtab",
            field=f"{_TRAINER}.workingDir",
            value=str(given),
        )
    return Path(given).resolve()


def trainer_environment(launch: LaunchEnvironment, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a trainer process: defaults of training, then inherited ones, then the launcher's."""
    return {
        **KEEP_FREED_MEMORY,
        **inherited,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        **launch.variables(),
    }


def container_environment(job: TrainingJob, launch: LaunchEnvironment) -> dict[str, str]:
    """Return the variables in the trainer container's ``env``; a value may refer to variables before it.

    Raises:
        UserError: It sets a variable of the launcher's, or takes a value from a cluster.
    """
    container = job.spec.trainer
    if container.get("envFrom"):
        raise UserError("needs a cluster; give the values in env to run here", field=f"{_TRAINER}.envFrom")
    variables: dict[str, str] = {}
    reserved = {*launch.variables(), *RESERVED_VARIABLES}
    for index, entry in enumerate(container.get("env") or []):
        name = entry["name"]
        if name in reserved:
            raise UserError("is set by the launcher; remove it", field=f"{_TRAINER}.env[{index}]", value=name)
        if "valueFrom" in entry:
            raise UserError(
                "valueFrom needs a cluster; give a value to run here", field=f"{_TRAINER}.env[{index}]", value=name
            )
        variables[name] = expand(entry.get("value") or "", variables)
    return variables


def pod_environment(launch: LaunchEnvironment, worker: int, address: str) -> dict[str, str]:
    """Return the variables that a cluster adds to a worker's pod, so that a command may refer to them here too."""
    told = launch.variables()
    given = {name: told[name] for name in ("MASTER_ADDR", "MASTER_PORT", "TRIMTAB_JOB", "TRIMTAB_RUN_DIR")}
    return {**given, "JOB_COMPLETION_INDEX": str(worker), "TRIMTAB_POD_IP": address}


_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by the variable's value and ``$$`` by a dollar; unknown names are left unchanged."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[1] else variables.get(found[2], found[0])

    return _REFERENCE.sub(replace, text)


def unknown(text: str, variables: Collection[str]) -> list[str]:
    """Return the unknown names that ``text`` refers to, in order; `expand` leaves these references unchanged."""
    return [found[2] for found in _REFERENCE.finditer(text) if not found[1] and found[2] not in variables]
