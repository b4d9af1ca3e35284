"""Joining a job whose ranks were started by torchrun, srun, mpirun, or a process group that the script has made.

The ranks meet, tell each other of their hosts, and do what a launcher of ours would have done: the first rank of each
host starts the network monitor there, and rank 0 keeps the run's directory.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from trimtab_api.errors import UserError
from trimtab_api.names import TLS_VARIABLE
from trimtab_api.rpc.addresses import is_of_this_machine
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.trainingjob import TrainingJob

from trimtab.control.monitors.network_alarm import network_line
from trimtab.launch.environment.job_secret import secret_of_certificates
from trimtab.launch.environment.launchers import Ranks, rendezvous_endpoint
from trimtab.launch.joining.configuration import Configuration, with_ranks
from trimtab.launch.joining.connection import JobConnection
from trimtab.launch.joining.host_layout import HostEndpoint, Layout, layout
from trimtab.launch.joining.run_certificates import certificates_by_secret
from trimtab.launch.joining.script_ending import ScriptEnding
from trimtab.launch.processes.children import Children
from trimtab.launch.sidecars import Sidecars, monitor_command
from trimtab.process.exit_handlers import only_in_this_process
from trimtab.process.messages import LOGGER, for_rank
from trimtab.run_files.layout import RunDirectory, resolved
from trimtab.run_files.recorder import Recorder
from trimtab.transport import extra_links as extra_links
from trimtab.transport.group import DEFAULT_DEADLINE, Group
from trimtab.transport.object_collectives import (
    TEXT_OR_NONE,
    Read,
    broadcast_json,
    gather_json,
    json_of,
    raise_together,
)
from trimtab.transport.rendezvous import process_group
from trimtab.transport.rendezvous.tcp import waiting_for

_JOB: Read[dict[str, Any] | None] = json_of(dict[str, Any] | None)


def join(ranks: Ranks, configuration: Configuration, *, on_gpu: bool) -> JobConnection:
    """Meet all ranks, and start what the job needs beside them.

    Raises:
        UserError: On every rank, where one rank's job cannot be read, or ranks read different ones.
        CommunicationError: The ranks do not meet.
    """
    job, mistake = _load(configuration)
    timeout = DEFAULT_DEADLINE if job is None else job.spec.communication.timeout
    certificates = Certificates.from_environment()
    secret = b"" if certificates is None else secret_of_certificates(certificates)
    group = _meet(ranks, timeout, secret, on_gpu=on_gpu)
    try:
        _agree_on_job(group, job, mistake)
        assert job is not None, "its mistake was raised"
        slowness = extra_links.join(group, job.spec.network.second_interface, group.transport.secret, timeout)
        endpoints = gather_json(group, HostEndpoint.of_this_rank().to_json(), HostEndpoint.read)
        hosts = layout(endpoints, group.rank)
        group.hosts = hosts.ranks
        return _Host(group, hosts, job, configuration).begin(slowness)
    except BaseException:
        group.close()
        raise


def _load(configuration: Configuration) -> tuple[TrainingJob | None, UserError | None]:
    """Return the job, or the mistake in it, which all ranks are told before this one gives up."""
    try:
        return configuration.load(), None
    except UserError as error:
        return None, error


def _meet(ranks: Ranks, timeout: float, secret: bytes, *, on_gpu: bool) -> Group:
    if dist.is_initialized():
        return Group.connect(deadline=timeout, secret=secret)
    host, port = rendezvous_endpoint(os.environ, ranks)
    if on_gpu:
        if ranks.local_rank is not None:
            torch.cuda.set_device(ranks.local_rank)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = host, str(port)
        process_group.initialize("nccl", ranks.rank, ranks.num_ranks, timeout)
        return Group.connect(deadline=timeout, secret=secret)

    def say(missing: list[int]) -> None:
        LOGGER.warning(f"{waiting_for(missing, ranks.num_ranks)} at {host}:{port}")

    return Group.meet_in_store(host, port, ranks.rank, ranks.num_ranks, timeout, secret=secret, say=say)


def _agree_on_job(group: Group, job: TrainingJob | None, mistake: UserError | None) -> None:
    """Raise this rank's mistake, or the first of another's, or where ranks have read different jobs."""
    raise_together(group, mistake, "cannot join", field="job")
    read = gather_json(group, job and _what_counts(job), _JOB)
    for rank, other in enumerate(read):
        if other != read[0]:
            raise UserError(
                f"rank {rank} has read another job than rank 0 ({_difference(read[0], other)}); give all ranks the same"
                " file and arguments",
                field="job",
            )


def _what_counts(job: TrainingJob) -> dict[str, Any]:
    """Return what all ranks must have read alike; what is run, and where, may differ between hosts."""
    data = resolved(job)
    spec = {name: data["spec"].get(name) for name in ("communication", "network", "seed", "target")}
    return {"metadata": {"name": data["metadata"]["name"]}, "spec": spec}


def _difference(one: Any, other: Any, path: str = "") -> str:
    """Return the first field in which two plain values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                return _difference(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    return f"{path}: {json.dumps(one)} and {json.dumps(other)}"


class _Host:
    """The duties of this rank for its host and, as rank 0, for the run."""

    def __init__(self, group: Group, hosts: Layout, job: TrainingJob, configuration: Configuration) -> None:
        self._group, self._hosts = group, hosts
        self._job = with_ranks(job, len(hosts.hosts), group.size)
        self._directory = RunDirectory(configuration.directory(job).resolve())  # a script may change its directory
        self._addresses = [(endpoint.address, endpoint.port) for endpoint in hosts.hosts]
        self._ending = ExitStack()
        """Ends what was started here, and writes down how the run ended."""

    @property
    def _is_main(self) -> bool:
        return self._group.rank == 0

    def begin(self, link_slowness: tuple[float, ...]) -> JobConnection:
        """Start what the job needs here. Raises `UserError` on every rank where rank 0 cannot keep the run."""
        script = self._keep_run()
        certificates = self._certificates()
        monitor = None
        recorder = Recorder(self._directory.path if self._is_main else None)
        if len(self._hosts.hosts) == 1:
            self._say(f"all {self._group.size} ranks are on one host: no network is measured")
        else:
            problem = _why_not_measured(self._hosts.hosts, self._job.spec.network.probe)
            if problem:
                self._say(f"the network is not measured, so the plan does not adapt to it: {problem}")
                recorder.decision(network_line(problem, 0.0))
            else:
                monitor = "{}:{}".format(*self._addresses[self._hosts.worker])
            if self._is_main or (monitor is not None and self._hosts.is_first):
                self._start_sidecars(monitor, certificates)
        if script is not None:  # its result is there before the status server ends
            self._ending.callback(script.close)
        leave = only_in_this_process(self._ending.close)
        atexit.register(leave)  # most scripts close no session
        return JobConnection(self._group, self._job, recorder, monitor, link_slowness, certificates, leave=leave)

    def _keep_run(self) -> ScriptEnding | None:
        """Take the run's directory on rank 0; all hear whether it could."""
        script, mistake = None, None
        if self._is_main:
            try:
                script = ScriptEnding(self._directory, self._job)
            except UserError as error:
                mistake = UserError(error.remedy, field="run_directory", value=error.value)
        told = broadcast_json(self._group, None if mistake is None else str(mistake), TEXT_OR_NONE)
        if told is not None:
            raise mistake or UserError(f"rank 0 cannot keep the run: {told}", field="run_directory")
        self._say(f"recording in {self._directory.path}; `trimtab report` on it draws the run")
        return script

    def _certificates(self) -> Certificates | None:
        """Have rank 0 issue certificates for this run where monitors would else speak plain text between machines."""
        addresses = [endpoint.address for endpoint in self._hosts.hosts]
        if len(addresses) == 1 or TLS_VARIABLE in os.environ or all(map(is_of_this_machine, addresses)):
            return None
        return certificates_by_secret(self._group, self._job.metadata.name, addresses)

    def _start_sidecars(self, monitor: str | None, certificates: Certificates | None) -> None:
        """Start this host's monitor, where this is its first rank, and the run's status server, where it is rank 0."""
        children = self._ending.enter_context(Children(has_threads=True))
        environment = dict(os.environ)
        if certificates is not None:
            folder = children.temporary_directory("trimtab-")
            certificates.write(folder)
            environment[TLS_VARIABLE] = str(folder)
        sidecars = self._ending.enter_context(Sidecars(children, self._directory, environment))
        if monitor is not None and self._hosts.is_first:
            worker = self._hosts.worker
            interface = self._hosts.hosts[worker].interface
            sidecars.start_monitor(worker, monitor_command(self._job, worker, self._addresses, interface))
        if self._is_main:
            sidecars.start_status(monitor)

    def _say(self, what: str) -> None:
        for_rank(self._group.rank).info(what)


def _why_not_measured(hosts: Sequence[HostEndpoint], probe: str) -> str:
    """Return why no monitors are started, and what to do about it; empty where they are."""
    lacking = [host.address for host in hosts if not host.has_iperf3]
    if lacking and probe == "iperf3":
        return (
            f"iperf3 is not installed on {', '.join(lacking)}; "
            "install it on every host, or set spec.network.probe to auto"
        )
    if by_ipv6 := [host.address for host in hosts if ":" in host.address]:
        return (
            f"monitors speak IPv4 alone, and the ranks meet by IPv6 ({', '.join(by_ipv6)}); "
            "give MASTER_ADDR as an IPv4 address, or name a plan"
        )
    return ""
