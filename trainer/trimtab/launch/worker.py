"""One worker of a job on a cluster, as the entry of its pod: find the others, run the ranks, say how it ended."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.errors import UserError
from trimtab_api.names import MONITOR_PORT, TLS_VARIABLE, TRAINER_STATUS_PORT

from trimtab.environment.launch_environment import LaunchEnvironment
from trimtab.launch import termination_message
from trimtab.launch.children import Children, Exit
from trimtab.launch.command import status_command, trainer_environment
from trimtab.launch.interrupts import Interrupted, has_come, heed
from trimtab.launch.kernel_cache import kernel_cache
from trimtab.launch.log_forwarding import LogForwarder
from trimtab.launch.plans import plan_of
from trimtab.launch.pod import Pod, num_threads
from trimtab.launch.root_cause import await_root_cause, root_cause
from trimtab.launch.wait_for_peer import wait_for_peer
from trimtab.records.result import RunResult, describe_machine
from trimtab.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab_api.trainingjob import TrainingJob

#: Where this worker's own monitor and, on worker 0, the status server are reached from inside the pod.
MONITOR = f"localhost:{MONITOR_PORT}"
STATUS = f"localhost:{TRAINER_STATUS_PORT}"
#: Seconds for the monitor of this pod, which was started before.
MONITOR_SECONDS = 120.0
#: Seconds for worker 0, whose pod may have to wait for a node to be made and an image to be pulled.
MASTER_SECONDS = 1800.0
#: Seconds between looks at the ranks, unless one prints or ends.
POLL_SECONDS = 0.1
#: Seconds that a rank has to end when the pod is told to: less than a pod's usual 30.
GRACE_SECONDS = 25.0
#: Seconds that the status server has to tell how the run ended, and the last lines to arrive.
FAREWELL_SECONDS = 5.0
DRAIN_SECONDS = 1.0
#: Exit code of a worker that was told to end: that of a process which SIGTERM killed.
INTERRUPTED = 143


def run_worker(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run ``argv`` once a rank to the end; returns the exit code of the first rank that failed, or 0.

    Leaves the cause of a failure as the container's termination message. Raises `UserError` where nothing could start.
    """
    message_path = termination_message.DEFAULT_PATH
    try:
        pod = Pod.read(environ)
        job = pod.load_job()
        message_path = Path(job.spec.trainer.get("terminationMessagePath", message_path))
        code, message = Worker(pod, job, environ).run(argv)
    except UserError as error:
        termination_message.write(str(error), message_path)
        raise
    if message:
        termination_message.write(message, message_path)
        print(f"trimtab: {message.splitlines()[0]}", file=sys.stderr)
    return code


class Worker:
    """The processes of one pod."""

    def __init__(self, pod: Pod, job: TrainingJob, environ: Mapping[str, str]) -> None:
        self._pod = pod
        self._job = job
        self._environ = environ
        self._directory = RunDirectory(pod.run_directory)
        self._certificates = Path(environ[TLS_VARIABLE]) if TLS_VARIABLE in environ else None
        self._begun = time.monotonic()

    @property
    def _leads(self) -> bool:
        """Whether rank 0 is here: then this worker serves the status and keeps the run directory."""
        return self._pod.worker == 0

    def run(self, argv: Sequence[str]) -> tuple[int, str]:
        """The exit code, and the cause where it is not 0. Raises `UserError` where nothing could start."""
        num_oom_kills = termination_message.num_oom_kills()
        several = self._job.spec.processes_per_worker > 1
        if self._leads:
            self._directory.prepare()
            self._directory.tell_starting("waiting for the network monitor of worker 0")
        try:
            with ExitStack() as stack:
                logs = stack.enter_context(LogForwarder(sys.stdout.buffer, named=several))
                children = stack.enter_context(Children(GRACE_SECONDS))
                self._find("localhost", MONITOR_PORT, MONITOR_SECONDS)
                if self._leads:
                    self._start_status(children, stack)
                    self._directory.tell_starting("the script has started and is not yet at trimtab.attach")
                master = self._pod.address if self._leads else self._find_master()
                self._start_ranks(argv, master, children, logs)
                failed = self._wait(children, logs)
                logs.drain(DRAIN_SECONDS)
                code, message = self._judge(failed, logs, termination_message.num_oom_kills() > num_oom_kills)
                self._finish("failed" if failed else "succeeded", message)
                self._let_status_tell(children)
        except Interrupted:
            self._finish("interrupted", "the pod was told to end")
            return INTERRUPTED, f"worker {self._pod.worker} was told to end"
        return code, message

    def _find(self, host: str, port: int, deadline: float) -> str:
        return wait_for_peer(host, port, self._certificates, deadline, lambda line: print(f"trimtab: {line}"))

    def _find_master(self) -> str:
        """Address of worker 0's pod of this very attempt: its status server is started before anything else."""
        return self._find(self._pod.master_host, TRAINER_STATUS_PORT, MASTER_SECONDS)

    def _start_status(self, children: Children, stack: ExitStack) -> None:
        resolved = self._job.model_dump(mode="json", by_alias=True, exclude_none=True)
        self._directory.job.write_text(json.dumps(resolved, indent=2) + "\n")
        log = stack.enter_context(self._directory.log("status").open("wb"))
        listen = f"0.0.0.0:{TRAINER_STATUS_PORT}" if self._certificates else STATUS
        children.start(
            "status", status_command(self._directory, self._pod.job_file, MONITOR, listen), self._environ, log.fileno()
        )
        self._directory.tell_status_address(STATUS)
        stack.callback(self._directory.status_address.unlink, missing_ok=True)

    def _start_ranks(self, argv: Sequence[str], master: str, children: Children, logs: LogForwarder) -> None:
        spec = self._job.spec
        cache = kernel_cache(self._environ, self._pod.run_directory)
        for local_rank in range(spec.processes_per_worker):
            launch = LaunchEnvironment(
                rank=self._pod.worker * spec.processes_per_worker + local_rank,
                num_ranks=spec.num_ranks,
                local_rank=local_rank,
                num_local_ranks=spec.processes_per_worker,
                master_address=master,
                master_port=self._pod.master_port,
                interface=self._pod.interface,
                job=self._pod.job_file,
                run_directory=self._pod.run_directory,
                monitor=MONITOR,
                seed=spec.seed,
                secret="",
            )
            threads = {"OMP_NUM_THREADS": str(num_threads(self._job, os.cpu_count() or 1))}
            environment = trainer_environment(launch, {**threads, **self._environ, **cache})
            if shutil.which(argv[0], path=environment["PATH"]) is None:
                raise UserError(
                    "no such program in this image",
                    field="spec.template.spec.containers[trainer].command",
                    value=argv[0],
                )
            name = f"rank {launch.rank}"
            with logs.pipe(name) as pipe:
                children.start(name, argv, environment, pipe)

    def _wait(self, children: Children, logs: LogForwarder) -> list[Exit]:
        """Until all ranks have ended well, or some have not: those."""
        while any(name.startswith("rank") for name in children.running):
            self._forward(logs)
            ended = children.collect()
            if any(each.name == "status" for each in ended):
                print("trimtab: the status server ended; training goes on, but nobody can follow it", file=sys.stderr)
            failed = [each for each in ended if _has_failed(each)]
            if failed:
                wait = partial(self._forward, logs)
                return await_root_cause(failed, logs.last_lines, children, wait, _has_failed)
        return []

    def _forward(self, logs: LogForwarder) -> None:
        logs.forward(POLL_SECONDS)
        heed()

    def _judge(self, failed: list[Exit], logs: LogForwarder, out_of_memory: bool) -> tuple[int, str]:
        """The exit code by a shell's conventions, and the cause: of several ranks, the one to blame."""
        if not failed:
            return 0, ""
        first = root_cause(failed, logs.last_lines)
        lines = logs.last_lines(first.name)
        head = f"{first.name} ended with {first.how}"
        if out_of_memory:
            head += ": the container has no more memory; raise resources.limits.memory or use less"
        return (
            first.code if first.code > 0 else 128 - first.code,
            "\n".join([head + ("; it last said" if lines else ""), *(f"    {line}" for line in lines)]),
        )

    def _finish(self, state: str, message: str) -> None:
        """Write down how the run ended, where the status server and `trimtab report` read it."""
        if not self._leads:
            return
        result = RunResult(
            state=state,
            message=message,
            plan=plan_of(self._job),
            emulated=False,
            relay=None,
            wall_seconds=time.monotonic() - self._begun,
            machine=describe_machine(),
        )
        self._directory.result.write_text(json.dumps(result.to_json(), indent=2) + "\n")

    def _let_status_tell(self, children: Children) -> None:
        deadline = time.monotonic() + FAREWELL_SECONDS
        while "status" in children.running and time.monotonic() < deadline and not has_come():
            children.collect()
            time.sleep(POLL_SECONDS)


def _has_failed(ended: Exit) -> bool:
    return ended.name.startswith("rank") and ended.code != 0
