"""`trimtab.attach`: from what a launcher left in the environment to a `Session`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from trimtab_api.renamed_arguments import renamed_arguments
from trimtab_api.trainingjob import load_job_file

from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.snapshot import Stateful
from trimtab.control.client import ControlClient
from trimtab.control.factory import make_controller
from trimtab.control.settings import controller_settings, fit_to_script
from trimtab.control.types import ModelFacts
from trimtab.engine.exchange.proxy_parameters import ProxyParameters
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.optimizer.modes import ManualOptimizer
from trimtab.engine.optimizer.stepper import as_list
from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.launch.environment.launchers import Ranks, describe_choice, ranks_of
from trimtab.launch.joining import foreign, native
from trimtab.launch.joining.configuration import Configuration
from trimtab.launch.joining.connection import JobConnection
from trimtab.launch.joining.rank_markers import mark_first_step, mark_unfinished
from trimtab.plan.constraints import Script
from trimtab.plan.names import DDP_HOOK_VARIABLE
from trimtab.plan.plan import dense_plan
from trimtab.process.messages import LOGGER, for_rank
from trimtab.run_files.recorder import Recorder
from trimtab.session import ddp_baseline
from trimtab.session.checks import (
    SessionT,
    check_arguments,
    check_devices,
    check_model_of_many_ranks,
    check_optimizer_of_many_ranks,
    check_plan,
    check_turns,
    only_session,
    refuse_second_session,
)
from trimtab.session.ddp_wrapper import silence, unwrapped
from trimtab.session.optimizer_family import family_of
from trimtab.session.options import SchedulerInterval, SessionOptions
from trimtab.session.session import Session


@renamed_arguments(turns="alternating_optimizers", also="extra_state")
def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    *,
    alternating_optimizers: bool = False,
    scheduler: Any = None,
    scheduler_interval: SchedulerInterval = "epoch",
    scaler: GradScaler | None = None,
    extra_state: Sequence[Stateful | torch.optim.Optimizer] = (),
    on_resize: Callable[[int, int], None] | None = None,
    job: str | Path | None = None,
    plan: str | None = None,
    run_directory: str | Path | None = None,
) -> Session:
    """Join the job that this process was started for, and return the session of the training loop.

    Every rank starts with the weights and buffers of rank 0. ``trimtab run`` and the operator set the job, the plan and
    the run directory themselves: they ignore ``job``, ``plan`` and ``run_directory``, with a warning. The three
    arguments are for torchrun, srun, mpirun, accelerate, and scripts that made their own process group. A single
    process trains plainly and records nothing.

    Args:
        model: The model, with float32 parameters. DistributedDataParallel around it exchanges nothing until the session
            is closed.
        optimizer: One optimizer, or several that all step in each step. None: the script updates the weights itself,
            between ``backward()`` and `Session.step`.
        alternating_optimizers: True if each step is of one optimizer, as in a GAN.
        scheduler: A learning rate scheduler, whose state is restored after a trial.
        scheduler_interval: "step": the session steps the scheduler after each step. "epoch": the script steps it.
        scaler: A `torch.amp.GradScaler`. `Session.step` steps and updates it.
        extra_state: Objects with ``state_dict()`` and ``load_state_dict()`` that a step changes, such as averaged
            weights, or an optimizer of parameters that are not exchanged. They are restored after a trial and from a
            checkpoint of the job.
        on_resize: Called with the former and the present number of ranks, after a checkpoint of another number of
            ranks was restored. Adapt the learning rate in it.
        job: Path of a TrainingJob file. None: ``TRIMTAB_JOB``, or a job of defaults.
        plan: A plan that replaces the job's, such as "0.01/all-gather". None: ``TRIMTAB_PLAN``, if it is set.
        run_directory: Where rank 0 records the run. None: ``TRIMTAB_RUN_DIR``, or ``runs/`` and the job's name.

    Returns:
        The session. Each process can have one open session.

    Raises:
        UserError: The training is not supported: parameters that are not float32, DDP inside the model, an
            optimizer of another model, an optimizer that needs a closure (LBFGS), a model on another rank's GPU, a
            second open session, or a job that cannot be read. The message says what to change.
        CommunicationError: A rank did not come within ``spec.communication.timeout``, or ended.
    """
    wrapper, model = model, unwrapped(model)
    optimizers = [ManualOptimizer(model.parameters())] if optimizer is None else as_list(optimizer)
    check_arguments(model, optimizers, scheduler, scheduler_interval, scaler, extra_state)
    if alternating_optimizers:
        check_turns(optimizers, scaler)
    options = SessionOptions(
        scheduler, scheduler_interval, LossScale(scaler), extra_state, alternating_optimizers, on_resize
    )
    request = AttachRequest(
        Session,
        model,
        optimizers,
        options,
        by_ddp=lambda environment, hook: ddp_baseline.session_of(environment, wrapper, optimizers, hook, options),
    )
    session, joined = begin(request, job=job, plan=plan, run_directory=run_directory)
    if joined is not None:
        session.when_closed.callback(silence(wrapper, session.no_sync))
    return session


@dataclass(frozen=True)
class AttachRequest(Generic[SessionT]):
    """What is to be attached, and by which kind of session."""

    kind: type[SessionT]
    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    options: SessionOptions
    by_ddp: Callable[[LaunchEnvironment, str], SessionT]
    """Makes the session where DDP is to exchange, by a hook of that name."""

    @property
    def is_on_gpu(self) -> bool:
        """True if the model is on a GPU."""
        return next(self.model.parameters()).is_cuda

    def check_several_ranks(self, local_rank: int | None) -> None:
        """Raise `UserError` for what several ranks cannot train."""
        if local_rank is not None:
            check_devices([parameter.device for parameter in self.model.parameters()], local_rank)
        check_model_of_many_ranks(self.model)
        for optimizer in self.optimizers:
            check_optimizer_of_many_ranks(optimizer)
        refuse_second_session()

    def alone(self, recorder: Recorder, seed: int = 0, checkpoints: CheckpointSettings | None = None) -> SessionT:
        """Return the session of a process that trains alone."""
        return self.kind(
            self.model,
            self.optimizers,
            group=None,
            plan=dense_plan(),
            recorder=recorder,
            options=replace(self.options, seed=seed),
            checkpoints=checkpoints,
        )


def begin(
    request: AttachRequest[SessionT],
    *,
    job: str | Path | None = None,
    plan: str | None = None,
    run_directory: str | Path | None = None,
) -> tuple[SessionT, JobConnection | None]:
    """Join the job that this process was started for, and make its session.

    Args:
        request: What is to be attached.
        job: As for `attach`.
        plan: As for `attach`.
        run_directory: As for `attach`.

    Returns:
        The session, and the job's connection; None where this session exchanges nothing.
    """
    environment = LaunchEnvironment.read(os.environ)
    configuration = Configuration.of(job, plan, run_directory, os.environ)
    if environment is None:
        return _begin_by_another_launcher(request, configuration)
    if environment.rank == 0:
        _say_what_does_not_count(job=job, plan=plan, run_directory=run_directory)
    finished = mark_unfinished(environment)
    session, joined = _begin_by_our_launcher(request, environment)
    session.when_closed.callback(finished)
    session.on_first_step(mark_first_step(environment))
    return session, joined


def _begin_by_another_launcher(
    request: AttachRequest[SessionT], configuration: Configuration
) -> tuple[SessionT, JobConnection | None]:
    ranks = _ranks_of_another_launcher()
    if ranks is None:
        told = configuration.load_if_told()
        if told is None:
            return request.alone(Recorder(None)), None
        return request.alone(Recorder(None), told.spec.seed, CheckpointSettings.of(told)), None
    request.check_several_ranks(ranks.local_rank)
    joined = foreign.join(ranks, configuration, on_gpu=request.is_on_gpu)
    return only_session(_session_of(request, joined)), joined


def _begin_by_our_launcher(
    request: AttachRequest[SessionT], environment: LaunchEnvironment
) -> tuple[SessionT, JobConnection | None]:
    if environment.num_ranks == 1:
        checkpoints = CheckpointSettings.of(load_job_file(environment.job), environment.keepers, environment.worker)
        return request.alone(Recorder(environment.run_directory), environment.seed, checkpoints), None
    request.check_several_ranks(environment.local_rank)
    if hook := os.environ.get(DDP_HOOK_VARIABLE):
        return only_session(request.by_ddp(environment, hook)), None
    joined = native.join(environment, on_gpu=request.is_on_gpu)
    return only_session(_session_of(request, joined)), joined


def _say_what_does_not_count(**arguments: str | Path | None) -> None:
    """Warn of arguments that are for other launchers: Trimtab's own have a job's file and a run's directory."""
    for name, value in arguments.items():
        if value is not None:
            rest = "is for other launchers; under `trimtab run` and on a cluster the job says it"
            LOGGER.warning(f"attach: {name}={str(value)!r} {rest}")


def _ranks_of_another_launcher() -> Ranks | None:
    """Return the place of this process among several: in the script's process group, or as its launcher says it."""
    if not dist.is_initialized():
        ranks = ranks_of(os.environ)
        choice = describe_choice(os.environ)
        if choice is not None and (ranks is None or ranks.rank == 0):
            LOGGER.info(choice)
        return ranks
    if dist.get_world_size() == 1:
        return None
    local_rank = os.environ.get("LOCAL_RANK", "")
    local = int(local_rank) if local_rank.isdecimal() else None
    return Ranks("a process group", dist.get_rank(), dist.get_world_size(), local)


def _session_of(request: AttachRequest[SessionT], joined: JobConnection) -> SessionT:
    """Make the session of one rank; rank 0's has the controller."""
    group, recorder, seed = joined.group, joined.recorder, joined.job.spec.seed
    model, optimizers = request.model, request.optimizers
    sizes = tuple(p.numel() for p in reversed(list(model.parameters())) if p.requires_grad)
    known = [(each.known or each) if isinstance(each, ManualOptimizer) else each for each in optimizers]
    facts = ModelFacts(
        sum(sizes),
        sizes,
        group.size,
        optimizer=family_of(*known),
        link_slowness=joined.link_slowness,
        shares_interface=group.can_open_extra_links,
        ranks_on_each=joined.job.spec.processes_per_worker,
    )
    asked = controller_settings(joined.job, facts.optimizer)
    script = Script(
        alternates=request.options.alternating_optimizers,
        is_manual=any(isinstance(each, ManualOptimizer) for each in optimizers),
        is_hook=isinstance(model, ProxyParameters),
    )
    settings = fit_to_script(asked, script, say=for_rank(group.rank).info)
    if group.transport.has_own_all_reduce:
        settings = replace(settings, dense_collectives=())  # the backend sums as it likes, whatever the plan says
    controller = make_controller(settings, facts, seed=seed)
    plan = controller.plan  # every rank begins with it: once rank 0's client is there, the controller may decide
    check_plan(plan, script, known)
    control_client = None
    if group.rank == 0:
        control_client = ControlClient(
            controller,
            joined.monitor,
            log=recorder.decision,
            now=lambda: recorder.now,
            certificates=joined.certificates,
            warn=for_rank(group.rank).info,
        )
        control_client.start(recorder.starting, patience=joined.job.spec.communication.timeout)
    session = request.kind(
        model,
        optimizers,
        group=group,
        plan=plan,
        recorder=recorder,
        options=replace(request.options, seed=seed),
        control_client=control_client,
        checkpoints=CheckpointSettings.of(joined.job, joined.keepers, joined.worker),
    )
    session.when_closed.callback(joined.leave)
    return session
