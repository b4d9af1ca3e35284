"""One local run, from the first process to the last: monitors, trainers, the network's schedule, and how it ended."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_api.errors import UserError
from trimtab_api.input_files import read_bytes

from trimtab.launch.environment import job_secret
from trimtab.launch.local.hosts import Hosts, make_hosts
from trimtab.launch.local.keepers import LocalKeepers
from trimtab.launch.local.preflight import placeholder_environment
from trimtab.launch.local.restart_policy import RestartPolicy
from trimtab.launch.preloading.forkserver import ForkServer
from trimtab.launch.processes.children import Exit, is_monitor, monitor_name, rank_name
from trimtab.launch.processes.interrupts import Interrupted
from trimtab.launch.processes.logs import LogFiles
from trimtab.launch.processes.supervisor import Ending, Supervisor, describe_failure, has_failed
from trimtab.launch.processes.trainer_command import Process, pod_environment, rank_environment, trainer_process
from trimtab.launch.sidecars import Sidecars, monitor_command
from trimtab.process.cpus import usable_cpus
from trimtab.run_files.json_files import read_file, read_json
from trimtab.run_files.layout import RunDirectory, resolved
from trimtab.run_files.run_lifecycle import RunLifecycle
from trimtab.run_files.schema import RunResult

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

#: Seconds between looks at the processes: the order in which they end is known this well.
POLL_SECONDS = 0.01
#: The address of a local run's metrics: this machine alone reads them.
METRICS_HOST = "127.0.0.1"
#: Seconds between calls of `poll`.
PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class RunRequest:
    """A run to make, and the place of its records."""

    job: TrainingJob
    plan: str
    """Name of the plan in tables: ``adaptive``, ``dense``, ``0.01/all-gather``."""
    network: Path | None
    """The network file to emulate; None: loopback."""
    directory: RunDirectory
    max_restarts: int = 0
    """Restarts of all ranks after which a failure is final."""
    metrics_port: int | None = None
    """Port of its metrics on this machine; those of worker w's monitor are w + 1 ports above, at its host's address.
    None: they are served nowhere.
    """


def run(
    request: RunRequest,
    poll: Callable[[], Ending | None],
    on_restart: Callable[[str], None] = lambda message: None,
) -> RunResult:
    """Run a job on this machine to its end. No process and no namespace is left behind, whatever happens.

    Args:
        request: What to run.
        poll: Called every half second meanwhile; what it returns, if anything, is how the run ends, at once.
        on_restart: Called with the cause each time before all ranks start again together, from the beginning.

    Raises:
        UserError: The job cannot start, or another run goes on in the directory.
        Interrupted: A signal came, in `interruptible`; the result is written first.
    """
    with (
        request.directory.held(),
        LocalKeepers(request.job, request.directory) as keepers,
        ForkServer(request.directory.log("forkserver")) as forkserver,
    ):
        return _run(request, poll, on_restart, keepers, forkserver)


def _run(
    request: RunRequest,
    poll: Callable[[], Ending | None],
    on_restart: Callable[[str], None],
    keepers: LocalKeepers,
    forkserver: ForkServer,
) -> RunResult:
    directory = request.directory
    lifecycle = RunLifecycle(directory, request.plan, emulated=request.network is not None)
    lifecycle.prepare(request.job)
    if request.network is not None:
        shutil.copyfile(request.network, directory.network)
    relay: dict[str, Any] | None = None
    policy = RestartPolicy(request.max_restarts)

    def finish(state: str, message: str) -> RunResult:
        return lifecycle.finish(state, message, restarts=policy.num_restarts, relay=relay)

    try:
        _start_forkserver(request, forkserver)
        while True:
            keepers.start_missing()
            with (
                make_hosts(request.network, request.job.spec.workers, directory.phases) as hosts,
                LogFiles(directory) as logs,
                Supervisor(
                    directory, logs, POLL_SECONDS, grace_when_interrupted=request.job.spec.termination_grace_seconds
                ) as supervisor,
                Sidecars(supervisor.children, directory, os.environ) as sidecars,
            ):
                lifecycle.starting("the script has started and is not yet at trimtab.attach")
                _start_monitors(request, hosts, supervisor)
                _start_trainers(request, hosts, supervisor, keepers.addresses, forkserver)
                monitor = f"{hosts.workers[0].address}:{hosts.workers[0].monitor_port}"
                sidecars.start_status(monitor, command=partial(hosts.command, 0))
                if request.metrics_port is not None:  # outside of the emulated network, where Prometheus is
                    sidecars.start_metrics(METRICS_HOST, request.metrics_port)
                ending = supervisor.wait(Watch(request, hosts, poll, lifecycle.began).check)
                if ending.state == "succeeded":
                    poll()
                relay = hosts.relay_report()
                attempt = policy.num_restarts
                ranks = map(rank_name, range(request.job.spec.num_ranks))
                pause = policy.failed(has_stepped=not directory.has_no_step(ranks)) if ending.failed else None
                if pause is None:
                    result = finish(ending.state, _last_message(ending, directory, policy))
                    supervisor.let_status_tell()
                    return result
            aside = directory.set_aside(attempt)
            cause = describe_failure(ending.failed, LogFiles(aside))
            on_restart(
                f"restart {policy.num_restarts} of at most {request.max_restarts}, all ranks from"
                f" {'the last checkpoint' if request.job.spec.checkpoint else 'the beginning'}, in {pause:g} s: {cause}"
            )
            time.sleep(pause)
    except Interrupted:
        finish("interrupted", "stopped by Ctrl-C or SIGTERM")
        raise


def _last_message(ending: Ending, directory: RunDirectory, policy: RestartPolicy) -> str:
    if not ending.failed:
        return ending.message
    return policy.last_words + describe_failure(ending.failed, LogFiles(directory))


def already_finished(request: RunRequest, states: Sequence[str]) -> bool:
    """Return whether the directory holds a run of the same job and network that ended in one of the states."""
    directory = request.directory
    try:
        same_job = read_json(directory.job) == resolved(request.job)
        ended_well = read_file(RunResult, directory.result).state in states
        kept_network = read_bytes(directory.network) if directory.network.exists() else None
    except (OSError, UserError):
        return False
    return same_job and ended_well and kept_network == (request.network.read_bytes() if request.network else None)


def _start_monitors(request: RunRequest, hosts: Hosts, supervisor: Supervisor) -> None:
    addresses = [(host.address, host.monitor_port) for host in hosts.workers]
    for worker, host in enumerate(hosts.workers):
        metrics_port = 0 if request.metrics_port is None else request.metrics_port + 1 + worker
        argv = monitor_command(request.job, worker, addresses, host.interface, metrics_port)
        supervisor.start(monitor_name(worker), Process(hosts.command(worker, argv), os.environ))


def _start_forkserver(request: RunRequest, forkserver: ForkServer) -> None:
    launch = placeholder_environment(request.job, worker=0)
    address = "127.0.0.1"
    process = trainer_process(request.job, launch, 0, address, _inherited(request.job))
    forkserver.start(process, {**pod_environment(launch, 0, address), **launch.variables()})


def _inherited(job: TrainingJob) -> dict[str, str]:
    """Return the variables that ranks have of the launcher; every worker's processes share this machine's cores."""
    return {**os.environ, "OMP_NUM_THREADS": str(max(1, usable_cpus() // job.spec.num_ranks))}


def _start_trainers(
    request: RunRequest, hosts: Hosts, supervisor: Supervisor, keepers: Sequence[str], forkserver: ForkServer
) -> None:
    spec, directory = request.job.spec, request.directory
    inherited = _inherited(request.job)
    secret = job_secret.draw()
    for worker, host in enumerate(hosts.workers):
        for local_rank in range(spec.processes_per_worker):
            launch = rank_environment(
                request.job,
                worker,
                local_rank,
                master=(hosts.workers[0].address, hosts.master_port),
                interface=host.interface,
                job_file=directory.job.resolve(),
                run_directory=directory.path.resolve(),
                monitor=f"{host.address}:{host.monitor_port}",
                secret=secret,
                keepers=keepers,
            )
            process = trainer_process(request.job, launch, worker, host.address, inherited)
            argv = hosts.command(worker, process.argv)
            directory.expect_first_step(rank_name(launch.rank))
            fork = partial(forkserver.fork, process, hosts.namespace(worker))
            supervisor.start(rank_name(launch.rank), replace(process, argv=argv), fork)


class Watch:
    """Watches all but the processes of a local run: the emulated network, the deadline, the caller."""

    def __init__(self, request: RunRequest, hosts: Hosts, poll: Callable[[], Ending | None], began: float) -> None:
        self._deadline = request.job.spec.active_deadline_seconds
        self._started = request.directory.started
        self._hosts, self._poll, self._began = hosts, poll, began
        self._schedule_runs = False
        self._polled_at = 0.0

    def check(self, ended: Sequence[Exit]) -> Ending | None:
        """Return the attempt's end, unless the processes in ``ended`` tell it themselves; called at every look."""
        if any(is_monitor(process.name) or has_failed(process) for process in ended):
            # A network that ends takes the processes on it along: it is the cause.
            if (failure := self._network_failure()) is not None:
                return failure
            if any(map(has_failed, ended)):
                return None
        now = time.monotonic()
        if self._deadline is not None and now - self._began > self._deadline:
            return Ending("deadline", f"ran longer than spec.activeDeadlineSeconds ({self._deadline:g} s)")
        if not self._schedule_runs and self._started.exists():
            self._hosts.start_schedule()
            self._schedule_runs = True
        self._hosts.log_phase()
        if now - self._polled_at <= PROGRESS_SECONDS:
            return None
        if (failure := self._network_failure()) is not None:
            return failure
        self._polled_at = now
        return self._poll()

    def _network_failure(self) -> Ending | None:
        failure = self._hosts.failure()
        return Ending("failed", f"the emulated network ended: {failure}") if failure else None
