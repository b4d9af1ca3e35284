"""`trimtab.attach`: from what the launcher left in the environment to a `Session`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from trimtab_api.catalogue import collectives, planners
from trimtab_api.trainingjob import TrainingJob, load_job_file

from trimtab.attach_checks import (
    check_arguments,
    check_devices,
    check_optimizer_of_many_ranks,
    only_session,
    refuse_lonely_ranks,
    refuse_second_session,
)
from trimtab.checkpoint.snapshot import Stateful
from trimtab.collectives import process_group
from trimtab.collectives.group import Group
from trimtab.collectives.rendezvous import waiting_for
from trimtab.control.controller import Controller
from trimtab.control.types import ControllerSettings, ModelFacts
from trimtab.control_client import ControlClient
from trimtab.engine.loss_scale import LossScale
from trimtab.environment.job_secret import secret_of
from trimtab.environment.launch_environment import LaunchEnvironment
from trimtab.optimizer_family import family_of
from trimtab.plan import FusionPlan, Plan, dense_plan
from trimtab.records.recorder import Recorder
from trimtab.session import SchedulerInterval, Session


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    scheduler: Any = None,
    scheduler_interval: SchedulerInterval = "epoch",
    scaler: GradScaler | None = None,
    also: Sequence[Stateful | torch.optim.Optimizer] = (),
) -> Session:
    """Join the job that the launcher started, and return the loop's `Session`.

    ``scheduler`` is snapshotted around trials; with ``scheduler_interval="step"`` the session steps it after each
    step, otherwise the user does. ``scaler`` is a GradScaler, which the session steps and updates. ``also``: whatever
    else a step changes and a trial must put back, such as averaged weights or a second optimizer; each has
    ``state_dict`` and ``load_state_dict``. Broadcasts rank 0's weights and buffers. Without a launcher this is
    single-process training.

    Raises `UserError` for what cannot work: a model that another library wraps, parameters that are not float32, an
    optimizer of another model or one that steps by a closure, a model on the GPU of another rank, a second session,
    several processes without a job.
    """
    check_arguments(model, optimizer, scheduler_interval, also)
    environment = LaunchEnvironment.read(os.environ)
    options: dict[str, Any] = {
        "scheduler": scheduler,
        "scheduler_interval": scheduler_interval,
        "scale": LossScale(scaler),
        "also": also,
    }
    if environment is None:
        refuse_lonely_ranks(os.environ)
        return Session(model, optimizer, group=None, plan=dense_plan(), recorder=Recorder(None), **options)
    job = load_job_file(environment.job)
    recorder = Recorder(environment.run_directory if environment.rank == 0 else None)
    options["seed"] = environment.seed
    if environment.num_ranks == 1:
        return Session(model, optimizer, group=None, plan=dense_plan(), recorder=recorder, **options)
    check_devices([parameter.device for parameter in model.parameters()], environment.local_rank)
    check_optimizer_of_many_ranks(optimizer)
    refuse_second_session()
    group = _join(model, environment, job.spec.communication.timeout, recorder)
    sizes = tuple(p.numel() for p in reversed(list(model.parameters())) if p.requires_grad)
    settings = controller_settings(job)
    facts = ModelFacts(sum(sizes), sizes, environment.num_ranks, optimizer=family_of(optimizer))
    controller = Controller(settings, facts, seed=environment.seed)
    plan = controller.plan  # every rank begins with it: once rank 0's client is there, the controller may decide
    control_client = None
    if environment.rank == 0:
        control_client = ControlClient(
            controller, environment.monitor, log=recorder.decision, now=lambda: recorder.now, say=recorder.starting
        )
    return only_session(
        Session(model, optimizer, group=group, plan=plan, recorder=recorder, control_client=control_client, **options)
    )


def controller_settings(job: TrainingJob) -> ControllerSettings:
    """What a TrainingJob's ``communication`` says, in the controller's terms."""
    wanted = job.spec.communication
    size, selection = wanted.fusion.buffer_size, wanted.fusion.selection
    planner = "single" if size == "single" else f"fixed:bytes={size:.0f}"
    fusion = planners.canonical(f"{planner}:selection={selection}")
    fusions = dict.fromkeys((fusion, *wanted.fusion.alternatives))  # each once
    return ControllerSettings(
        policy="adaptive" if wanted.policy == "Adaptive" else "static",
        static_plan=None
        if wanted.plan is None
        else Plan.parse(wanted.plan, FusionPlan(planner=fusion), sparsifier=wanted.sparsifier),
        min_ratio=wanted.ratio.min,
        max_ratio=wanted.ratio.max,
        candidate_ratios=wanted.ratio.candidates,
        collectives=tuple(name for name in wanted.collectives if not collectives[name].why_not(job.spec.num_ranks)),
        fusions=tuple(fusions),
        sparsifiers=(wanted.sparsifier,),
        schedules=wanted.schedules,
        network_change=wanted.triggers.network,
        gain_change=wanted.triggers.gain,
        trial_iterations=wanted.trials.iterations,
        exploration_share=wanted.trials.budget,
        speed_weight=wanted.speed_weight,
        warmup_steps=wanted.warmup_steps,
    )


def _join(model: nn.Module, environment: LaunchEnvironment, timeout: float, recorder: Recorder) -> Group:
    """All ranks, by the process group that the script has made if it has; no wait passes ``timeout`` seconds."""
    on_gpu = next(model.parameters()).is_cuda
    if on_gpu:
        torch.cuda.set_device(environment.local_rank)
    secret = secret_of(environment, os.environ)

    def say(missing: list[int]) -> None:
        recorder.starting(waiting_for(missing, environment.num_ranks))

    where = environment.master_address, environment.master_port, environment.rank, environment.num_ranks, timeout
    if not dist.is_initialized():
        if not on_gpu:
            return Group.meet(*where, secret=secret, say=say)
        process_group.form("nccl", *where, secret=secret, say=say)
    return Group.connect(deadline=timeout, secret=secret)
