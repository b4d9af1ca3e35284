"""One local run, from the first process to the last: monitors, trainers, the network's schedule, and how it ended."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_api.units import format_duration

from trimtab.environment import job_secret
from trimtab.environment.launch_environment import LaunchEnvironment
from trimtab.launch.children import Children, Exit
from trimtab.launch.command import status_command, trainer_process
from trimtab.launch.hosts import Hosts, make_hosts
from trimtab.launch.interrupts import Interrupted, has_come, pause
from trimtab.launch.root_cause import await_root_cause, root_cause
from trimtab.records.result import RunResult, describe_machine
from trimtab.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

#: Seconds between looks at the children: the order of deaths is known this well.
POLL_SECONDS = 0.01
#: Seconds between calls of the observer.
OBSERVE_SECONDS = 0.5
#: Lines of a log that tell how a process failed.
NUM_LAST_LINES = 12
#: Name of the child that serves the run's status. It may fail; the run goes on.
STATUS = "status"
#: Seconds that it has to tell how the run ended.
FAREWELL_SECONDS = 5.0


@dataclass(frozen=True)
class RunRequest:
    """What to run, and where to keep it."""

    job: TrainingJob
    plan: str
    """Name of the plan in tables: ``adaptive``, ``dense``, ``0.01/all-gather``."""
    network: Path | None
    """The network file to emulate; None: loopback."""
    directory: RunDirectory
    max_restarts: int = 0
    """Restarts of all ranks after which a failure is final."""


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    state: str
    message: str = ""
    failed: tuple[Exit, ...] = ()
    """The processes that failed, where all may be restarted for it."""


#: States of a run that did what was asked of it.
WELL = ("succeeded", "target")


def run(
    request: RunRequest, observe: Callable[[], bool], restarted: Callable[[str], None] = lambda message: None
) -> RunResult:
    """Run a job on this machine to its end; ``observe`` is called every half second meanwhile.

    Where it returns True the run has reached its target and ends at once, in the state ``target``. ``restarted`` is
    called with the cause each time before all ranks start again together, from the beginning.
    Leaves no process and no namespace behind, whatever happens. Raises `UserError` where the job cannot start, or
    another run goes on in the directory, and `Interrupted` in `interruptible` (the result is written first).
    """
    with request.directory.held():
        return _run(request, observe, restarted)


def _run(request: RunRequest, observe: Callable[[], bool], restarted: Callable[[str], None]) -> RunResult:
    request.directory.prepare()
    _write_json(request.directory.job, _resolved(request.job))
    if request.network is not None:
        shutil.copyfile(request.network, request.directory.network)
    begun = time.monotonic()
    relay: dict[str, Any] | None = None
    restarts = 0

    def finish(state: str, message: str) -> RunResult:
        result = RunResult(
            state=state,
            message=message,
            plan=request.plan,
            emulated=request.network is not None,
            relay=relay,
            wall_seconds=time.monotonic() - begun,
            machine=describe_machine(),
            restarts=restarts,
        )
        _write_json(request.directory.result, result.to_json())
        return result

    try:
        while True:
            with ExitStack() as stack:
                workers = request.job.spec.workers
                hosts = stack.enter_context(make_hosts(request.network, workers, request.directory.phases))
                children = stack.enter_context(Children())
                request.directory.tell_starting("the script has started and is not yet at trimtab.attach")
                _start_monitors(request, hosts, children)
                _start_trainers(request, hosts, children)
                _start_status(request, hosts, children, stack)
                ending = _watch(request, hosts, children, observe, begun)
                relay = hosts.relay_report()
                if not ending.failed or restarts >= request.max_restarts:
                    result = finish(ending.state, _last_message(ending, request.directory, restarts))
                    _let_status_tell(children)
                    return result
            aside = request.directory.set_aside(restarts)
            restarts += 1
            cause = describe_failure(ending.failed, aside)
            restarted(f"restart {restarts} of at most {request.max_restarts}, all ranks from the beginning: {cause}")
    except Interrupted:
        finish("interrupted", "stopped by Ctrl-C or SIGTERM")
        raise


def _last_message(ending: Ending, directory: RunDirectory, restarts: int) -> str:
    if not ending.failed:
        return ending.message
    cause = describe_failure(ending.failed, directory)
    return f"after {restarts} restarts, the most that spec.maxRestarts allows: {cause}" if restarts else cause


def is_done(request: RunRequest, states: Sequence[str]) -> bool:
    """Whether the run's directory holds a run of the same job on the same network that ended in one of the states."""
    directory = request.directory
    try:
        same_job = json.loads(directory.job.read_text()) == _resolved(request.job)
        ended_well = json.loads(directory.result.read_text())["state"] in states
        kept_network = directory.network.read_bytes() if directory.network.exists() else None
    except (OSError, ValueError, KeyError):
        return False
    return same_job and ended_well and kept_network == (request.network.read_bytes() if request.network else None)


def _resolved(job: TrainingJob) -> dict[str, Any]:
    return job.model_dump(mode="json", by_alias=True, exclude_none=True)


def _start_monitors(request: RunRequest, hosts: Hosts, children: Children) -> None:
    network = request.job.spec.network
    peers = ",".join(f"{each.address}:{each.monitor_port}" for each in hosts.workers)
    for worker, each in enumerate(hosts.workers):
        argv = [sys.executable, "-m", "trimtab_netmon.main", "serve"]
        argv += ["--rank", str(worker), "--peers", peers, "--listen", f"{each.address}:{each.monitor_port}"]
        argv += ["--interface", each.interface]
        argv += [
            "--probe-interval",
            format_duration(network.probe_interval),
            "--probe-budget",
            f"{network.probe_budget:g}",
        ]
        name = f"monitor-{worker}"
        _start(children, name, hosts.command(worker, argv), os.environ, request.directory)


def _start_trainers(request: RunRequest, hosts: Hosts, children: Children) -> None:
    spec = request.job.spec
    num_ranks = spec.workers * spec.processes_per_worker
    known_by = job_secret.draw()
    for rank in range(num_ranks):
        worker, local_rank = divmod(rank, spec.processes_per_worker)
        here = hosts.workers[worker]
        launch = LaunchEnvironment(
            rank=rank,
            num_ranks=num_ranks,
            local_rank=local_rank,
            num_local_ranks=spec.processes_per_worker,
            master_address=hosts.workers[0].address,
            master_port=hosts.master_port,
            interface=here.interface,
            job=request.directory.job.resolve(),
            run_directory=request.directory.path.resolve(),
            monitor=f"{here.address}:{here.monitor_port}",
            seed=spec.seed,
            secret=known_by,
        )
        num_threads = max(1, (os.cpu_count() or 1) // num_ranks)  # every worker's processes share this machine
        inherited = {**os.environ, "OMP_NUM_THREADS": str(num_threads)}
        process = trainer_process(request.job, launch, worker, here.address, inherited)
        argv = hosts.command(worker, process.argv)
        _start(children, f"rank-{rank}", argv, process.environment, request.directory, process.directory)


def _start_status(request: RunRequest, hosts: Hosts, children: Children, stack: ExitStack) -> None:
    """Serve the run's status at a Unix socket, which is reached from any network namespace."""
    address = f"unix:{children.temporary_directory('trimtab-')}/status"  # a run directory's path may be too long
    monitor = f"{hosts.workers[0].address}:{hosts.workers[0].monitor_port}"
    argv = status_command(request.directory, request.directory.job, monitor, address)
    _start(children, STATUS, hosts.command(0, argv), os.environ, request.directory)
    request.directory.tell_status_address(address)
    stack.callback(request.directory.status_address.unlink, missing_ok=True)


def _start(
    children: Children,
    name: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    directory: RunDirectory,
    working_directory: Path | None = None,
) -> None:
    with directory.log(name).open("wb") as log:
        children.start(name, argv, environment, log.fileno(), working_directory)


def _let_status_tell(children: Children) -> None:
    """Give those who watch the status the time to hear how the run ended."""
    deadline = time.monotonic() + FAREWELL_SECONDS
    while STATUS in children.running and time.monotonic() < deadline and not has_come():
        children.collect()
        time.sleep(POLL_SECONDS)


def _watch(request: RunRequest, hosts: Hosts, children: Children, observe: Callable[[], bool], begun: float) -> Ending:
    """Wait until every trainer has ended well, or anything has gone wrong."""
    deadline = request.job.spec.active_deadline_seconds
    has_begun = False
    observed = 0.0
    while any(name.startswith("rank-") for name in children.running):
        failed = [each for each in children.collect() if _has_failed(each)]
        if failed:
            fault = hosts.failure()  # a network that ends takes the processes on it along: it is the cause
            if fault:
                return Ending("failed", f"the emulated network ended: {fault}")
            last_lines = partial(_last_lines, request.directory)
            wait = partial(pause, POLL_SECONDS)
            return Ending("failed", failed=tuple(await_root_cause(failed, last_lines, children, wait, _has_failed)))
        now = time.monotonic()
        if deadline is not None and now - begun > deadline:
            return Ending("deadline", f"ran longer than spec.activeDeadlineSeconds ({deadline:g} s)")
        if not has_begun and request.directory.started.exists():
            hosts.start_schedule()
            has_begun = True
        hosts.log_phase()
        if now - observed > OBSERVE_SECONDS:
            if fault := hosts.failure():
                return Ending("failed", f"the emulated network ended: {fault}")
            if observe():
                return Ending("target")
            observed = now
        pause(POLL_SECONDS)
    observe()
    return Ending("succeeded")


def _has_failed(ended: Exit) -> bool:
    """Monitors do not end by themselves; that the status server has ended harms no training."""
    return ended.name != STATUS and (ended.code != 0 or ended.name.startswith("monitor-"))


def describe_failure(failed: Sequence[Exit], directory: RunDirectory) -> str:
    """Which process failed, how, and the last lines of its log; of several, the one to blame."""
    first = root_cause(failed, partial(_last_lines, directory))
    kind, _, number = first.name.partition("-")
    who = f"rank {number}" if kind == "rank" else f"the monitor of worker {number}"
    log = directory.log(first.name)
    lines = _last_lines(directory, first.name)
    head = f"{who} ended with {first.how}; its log is {log}"
    return "\n".join([f"{head}, and ends with" if lines else f"{head} (empty)", *(f"    {line}" for line in lines)])


def _last_lines(directory: RunDirectory, name: str) -> list[str]:
    """The last lines of what a process printed."""
    log = directory.log(name).read_text(errors="replace")
    return [line for line in log.splitlines() if line.strip()][-NUM_LAST_LINES:]


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n")
