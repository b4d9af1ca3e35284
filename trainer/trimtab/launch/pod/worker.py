"""One worker of a job on a cluster, as the entry of its pod: find the others, run the ranks, say how it ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.errors import UserError
from trimtab_api.input_files import private_path_error
from trimtab_api.names import MONITOR_PORT, TLS_VARIABLE, TRAINER_METRICS_PORT, TRAINER_STATUS_PORT
from trimtab_api.steps_of_attempts import BEFORE_FIRST_STEP, NOTHING_STARTED

from trimtab.launch.pod import termination_message
from trimtab.launch.pod.job_file import job_file
from trimtab.launch.pod.pod import Pod, grace_seconds, num_threads
from trimtab.launch.pod.private_folder import private_folder
from trimtab.launch.pod.wait_for_peer import wait_for_peer
from trimtab.launch.processes.children import STATUS, Exit, rank_name
from trimtab.launch.processes.interrupts import Interrupted, pause
from trimtab.launch.processes.logs import LogForwarder
from trimtab.launch.processes.root_cause import root_cause
from trimtab.launch.processes.supervisor import Supervisor, describe_failure
from trimtab.launch.processes.trainer_command import Process, rank_environment, trainer_environment
from trimtab.launch.sidecars import Sidecars
from trimtab.plan.names import plan_of
from trimtab.process.cpus import usable_cpus
from trimtab.process.messages import LOGGER
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.lock import InUseError
from trimtab.run_files.run_lifecycle import RunLifecycle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab_api.trainingjob import TrainingJob

#: Addresses, inside the pod, of this worker's own monitor and, on worker 0, of the status server.
MONITOR_ADDRESS = f"localhost:{MONITOR_PORT}"
STATUS_ADDRESS = f"localhost:{TRAINER_STATUS_PORT}"
#: Seconds to wait for the monitor of this pod, which was started before.
MONITOR_SECONDS = 120.0
#: Seconds to wait for the run directory's lock: more than file servers lease one to a client that is lost.
LOCK_SECONDS = 150.0
#: Seconds between looks at the ranks, unless one prints.
POLL_SECONDS = 0.1
#: Most seconds that the other ranks of a pod have to end after one has failed; they may hang for want of it.
GRACE_SECONDS = 25.0
#: Seconds to wait for the last lines that the ranks printed.
DRAIN_SECONDS = 1.0
#: The launcher of all attempts in a pod's run directory, which belongs to one job.
_ITS_JOB = "its job"
#: Exit code of a worker that was told to end: that of a process which SIGTERM killed.
INTERRUPTED = 143
#: Said of a rank that failed, where the kernel has killed a process of the container since the ranks started.
_OUT_OF_MEMORY = ": the container has no more memory; raise resources.limits.memory or use less"
#: Names numba's cache of compiled kernels.
_CACHE_VARIABLE = "NUMBA_CACHE_DIR"


def run_worker(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run ``argv`` once a rank to the end; return the exit code of the rank that failed first, or 0.

    The cause of a failure becomes the container's termination message.

    Raises:
        UserError: Nothing could start.
    """
    message_path = termination_message.DEFAULT_PATH
    try:
        pod = Pod.read(environ)
        job = pod.load_job()
        message_path = Path(job.spec.trainer.get("terminationMessagePath", message_path))
        code, message = Worker(pod, job, environ).run(argv)
    except UserError as error:
        termination_message.write(f"{NOTHING_STARTED}{error}", message_path)
        raise
    if message:
        termination_message.write(message, message_path)
        LOGGER.error(message.splitlines()[0])
    return code


class Worker:
    """The processes of one pod."""

    def __init__(self, pod: Pod, job: TrainingJob, environ: Mapping[str, str]) -> None:
        self._pod = pod
        self._job = job
        self._job_file = pod.job_file
        self._environ = environ
        self._directory = RunDirectory(pod.run_directory)
        self._certificates = Path(environ[TLS_VARIABLE]) if TLS_VARIABLE in environ else None
        self._lifecycle = RunLifecycle(self._directory, plan_of(job))

    @property
    def _has_rank_0(self) -> bool:
        """True if rank 0 is here: then this worker serves the status and keeps the run directory."""
        return self._pod.worker == 0

    def run(self, argv: Sequence[str]) -> tuple[int, str]:
        """Return the exit code, and the cause where it is not 0. Raise `UserError` where nothing could start."""
        if not self._has_rank_0:
            return self._train(argv)
        with ExitStack() as holding:
            self._hold_directory(holding)
            self._lifecycle.prepare(self._job, _ITS_JOB)
            self._lifecycle.starting("waiting for the network monitor of worker 0")
            return self._train(argv)

    def _hold_directory(self, holding: ExitStack) -> None:
        """Lock it, once the pod of the attempt before lets go of it: its node may be lost, and its lock be leased."""
        deadline, has_said = time.monotonic() + LOCK_SECONDS, False
        while True:
            try:
                holding.enter_context(self._directory.held(f"pod {socket.gethostname()}"))
                return
            except InUseError as error:
                if time.monotonic() > deadline:
                    raise
                if not has_said:
                    print(f"trimtab: {error}; waits for up to {LOCK_SECONDS:g} s", flush=True)
                has_said = True
            pause(1.0)

    def _train(self, argv: Sequence[str]) -> tuple[int, str]:
        num_oom_kills = termination_message.num_oom_kills()
        try:
            with ExitStack() as stack:
                several = self._job.spec.processes_per_worker > 1
                logs = stack.enter_context(LogForwarder(sys.stdout.buffer, named=several))
                cache = stack.enter_context(kernel_cache(self._environ))
                self._job_file = stack.enter_context(job_file(self._pod, self._job))
                grace = grace_seconds(self._job)
                supervisor = stack.enter_context(
                    Supervisor(self._directory, logs, POLL_SECONDS, min(GRACE_SECONDS, grace), grace)
                )
                sidecars = stack.enter_context(Sidecars(supervisor.children, self._directory, self._environ))
                self._wait_for("localhost", MONITOR_PORT, MONITOR_SECONDS)
                if self._has_rank_0:
                    self._start_servers(sidecars)
                    self._lifecycle.starting("the script has started and is not yet at trimtab.attach")
                master = self._pod.address if self._has_rank_0 else self._wait_for_master()
                self._start_ranks(argv, master, supervisor, cache)
                ending = supervisor.wait(_say_that_status_ended)
                logs.drain(DRAIN_SECONDS)
                code, message = 0, ""
                if ending.failed:
                    code = _exit_code(root_cause(ending.failed, logs.last_lines))
                    is_out_of_memory = termination_message.num_oom_kills() > num_oom_kills
                    how = BEFORE_FIRST_STEP if self._has_no_step else ""
                    how += _OUT_OF_MEMORY if is_out_of_memory else ""
                    message = describe_failure(ending.failed, logs, how)
                self._finish(ending.state, message)
                supervisor.let_status_tell()
        except Interrupted:
            self._finish("interrupted", "the pod was told to end")
            return INTERRUPTED, f"worker {self._pod.worker} was told to end"
        return code, message

    def _wait_for(self, host: str, port: int, deadline: float | None) -> str:
        return wait_for_peer(host, port, self._certificates, deadline, lambda line: print(f"trimtab: {line}"))

    def _wait_for_master(self) -> str:
        """Return the address of worker 0's pod of this very attempt: its status server starts before anything else.

        Its pod may have to wait for hours until a node is free. That is no failure, and the status of the job says it:
        so there is no deadline. If worker 0 fails, the attempt ends, and this pod with it.
        """
        return self._wait_for(self._pod.master_host, TRAINER_STATUS_PORT, None)

    def _start_servers(self, sidecars: Sidecars) -> None:
        listen = f"0.0.0.0:{TRAINER_STATUS_PORT}" if self._certificates else None
        sidecars.start_status(MONITOR_ADDRESS, STATUS_ADDRESS, listen=listen, job=self._job_file)
        if self._certificates:  # else the worker runs on a machine by itself, whose ports are not the pod's
            sidecars.start_metrics("0.0.0.0", TRAINER_METRICS_PORT)  # noqa: S104

    def _start_ranks(self, argv: Sequence[str], master: str, supervisor: Supervisor, cache: Mapping[str, str]) -> None:
        threads = {"OMP_NUM_THREADS": str(num_threads(self._job, usable_cpus()))}
        for local_rank in range(self._job.spec.processes_per_worker):
            launch = rank_environment(
                self._job,
                self._pod.worker,
                local_rank,
                master=(master, self._pod.master_port),
                interface=self._pod.interface,
                job_file=self._job_file,
                run_directory=self._pod.run_directory,
                monitor=MONITOR_ADDRESS,
                secret="",
                keepers=self._pod.keepers,
            )
            environment = trainer_environment(launch, {**threads, **self._environ, **cache})
            if shutil.which(argv[0], path=environment["PATH"]) is None:
                raise UserError(
                    "no such program in this image",
                    field="spec.template.spec.containers[trainer].command",
                    value=argv[0],
                )
            self._directory.expect_first_step(rank_name(launch.rank))
            supervisor.start(rank_name(launch.rank), Process(argv, environment))

    @property
    def _has_no_step(self) -> bool:
        """True if it is sure that none of this pod's ranks has taken a step."""
        num, first = self._job.spec.processes_per_worker, self._pod.worker * self._job.spec.processes_per_worker
        return self._directory.has_no_step(rank_name(rank) for rank in range(first, first + num))

    def _finish(self, state: str, message: str) -> None:
        """Write down how the run ended, where the status server and `trimtab report` read it."""
        if self._has_rank_0:
            self._lifecycle.finish(state, message)


def _say_that_status_ended(ended: Sequence[Exit]) -> None:
    if any(process.name == STATUS for process in ended):
        LOGGER.warning("the status server ended; training goes on, but nobody can follow it")


def _exit_code(ended: Exit) -> int:
    """Return the exit code as shells do: 128 and the number of the signal where one killed the process."""
    return ended.code if ended.code > 0 else 128 - ended.code


@contextlib.contextmanager
def kernel_cache(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Give the variable to set for the ranks: the shipped directory if it is writable, else a private copy of it.

    What is made for it goes when the context is left. Numba unpickles what it finds in its cache, which runs code. So
    the cache is never on the run volume, which others may write: it is a directory that this user alone may write. The
    image ships some kernels, in a directory that may be read-only.

    Numba reads a cache only in a directory that it may write to. It compiles anew on a processor other than the one
    that the image was built on, and where others may have written what was shipped.

    Raises:
        UserError: There is no place for a private directory.
    """
    shipped = environ.get(_CACHE_VARIABLE)
    usable = shipped if shipped is not None and _is_usable(Path(shipped)) else None
    if usable is not None and os.access(usable, os.W_OK):
        yield {_CACHE_VARIABLE: usable}
        return
    with private_folder("trimtab-kernels-", "compiled kernels need", _CACHE_VARIABLE) as own:
        if usable is not None:
            shutil.copytree(usable, own, dirs_exist_ok=True)
            own.chmod(0o700)  # not the mode of what was copied
        yield {_CACHE_VARIABLE: str(own)}


def _is_usable(shipped: Path) -> bool:
    """Return whether this is a directory that nobody else may have written to, and print why not."""
    if not shipped.is_dir():
        return False
    error = next(filter(None, map(private_path_error, (shipped, *shipped.rglob("*")))), None)
    if error is not None:
        print(f"trimtab: {_CACHE_VARIABLE}={shipped} is not used ({error}); kernels are compiled again", flush=True)
    return error is None
