"""Joining a job whose launcher, ``trimtab run`` or a pod's worker, has told this process all that it must know."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from trimtab_api.trainingjob import load_job_file

from trimtab.launch.environment.job_secret import secret_of
from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.launch.joining.connection import JobConnection
from trimtab.launch.joining.host_layout import workers
from trimtab.run_files.recorder import Recorder
from trimtab.transport import extra_links as extra_links
from trimtab.transport.group import Group
from trimtab.transport.rendezvous import process_group
from trimtab.transport.rendezvous.tcp import waiting_for


def join(environment: LaunchEnvironment, *, on_gpu: bool) -> JobConnection:
    """Meet all ranks. Raise `UserError` or `CommunicationError`."""
    job = load_job_file(environment.job)
    recorder = Recorder(environment.run_directory if environment.rank == 0 else None)
    secret, timeout = secret_of(environment, os.environ), job.spec.communication.timeout
    group = _meet(environment, timeout, recorder, secret, on_gpu=on_gpu)
    group.hosts = workers(environment.num_ranks, environment.num_local_ranks)
    try:
        slowness = extra_links.join(group, job.spec.network.second_interface, secret, timeout)
    except BaseException:
        group.close()
        raise
    has_network = environment.num_local_ranks < environment.num_ranks
    monitor = environment.monitor if has_network else None
    return JobConnection(
        group, job, recorder, monitor, slowness, keepers=environment.keepers, worker=environment.worker
    )


def _meet(environment: LaunchEnvironment, timeout: float, recorder: Recorder, secret: bytes, *, on_gpu: bool) -> Group:
    """Join all ranks, in the process group that the script has made if any; no wait passes ``timeout`` seconds."""
    if on_gpu:
        torch.cuda.set_device(environment.local_rank)

    def say(missing: list[int]) -> None:
        recorder.starting(waiting_for(missing, environment.num_ranks))

    where = environment.master_address, environment.master_port, environment.rank, environment.num_ranks, timeout
    if not dist.is_initialized():
        if not on_gpu:
            return Group.meet(*where, secret=secret, say=say)
        process_group.form("nccl", *where, secret=secret, say=say)
    return Group.connect(deadline=timeout, secret=secret)
