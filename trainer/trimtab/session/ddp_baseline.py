"""A script that attaches, trained by torch's own DistributedDataParallel: what a comparison sets beside Trimtab.

`trimtab compare --plans adaptive,ddp-fp16,ddp-powersgd` starts the job's script unchanged, with the variable
`TRIMTAB_DDP_HOOK`. `trimtab.attach` then wraps the model, and the session only counts and records steps.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import load_job_file

from trimtab.engine.phase_timer import Phase
from trimtab.launch.environment.job_secret import secret_of
from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.plan.names import DDP_HOOK_VARIABLE, DDP_HOOKS
from trimtab.plan.plan import dense_plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.rank_ops import RankOps
from trimtab.session.script_numbers import as_handed_over, to_reduce
from trimtab.session.session import Session
from trimtab.transport.rendezvous import process_group

#: PowerSGD over Gloo needs one bucket: with several, its collectives cross.
_ONE_BUCKET_MB = 1000
#: DDP makes its buckets anew after the first step, which PowerSGD must see.
_DENSE_STEPS_OF_POWERSGD = 2
_OPERATIONS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


def wrap(model: nn.Module, hook: str, on_last: Callable[[], None] = lambda: None) -> DistributedDataParallel:
    """Wrap the model in DDP, with a hook.

    Args:
        model: The model.
        hook: ``fp16`` or ``powersgd`` (rank 1); any other name is DDP's own all-reduce.
        on_last: Called before the hook has the last bucket of a backward pass.
    """
    wrapped = DistributedDataParallel(model, bucket_cap_mb=_ONE_BUCKET_MB if hook == "powersgd" else 25)
    _register(wrapped, hook, on_last)
    return wrapped


def _register(wrapped: DistributedDataParallel, hook: str, on_last: Callable[[], None]) -> None:
    if hook == "fp16":
        wrapped.register_comm_hook(None, _telling(default_hooks.fp16_compress_hook, on_last))
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=_DENSE_STEPS_OF_POWERSGD
        )
        wrapped.register_comm_hook(state, _telling(powerSGD_hook.powerSGD_hook, on_last))


def _telling(hook: Callable[[Any, Any], Any], on_last: Callable[[], None]) -> Callable[[Any, Any], Any]:
    def call(state: Any, bucket: Any) -> Any:
        if bucket.is_last():
            on_last()
        return hook(state, bucket)

    call.__annotations__ = {}  # of which DDP bears its own types alone, not their names
    return call


def session_of(
    environment: LaunchEnvironment,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    hook: str,
    options: SessionOptions,
) -> DdpSession:
    """Meet all ranks in torch's process group, if the script has not, and train by DDP.

    Raises:
        UserError: The hook is not known, or optimizers alternate, of whose models DDP would wrap one alone.
    """
    if hook not in DDP_HOOKS.values():
        raise UserError(f"is {' or '.join(DDP_HOOKS.values())}", field=DDP_HOOK_VARIABLE, value=hook)
    if options.alternating_optimizers:
        raise UserError("does not support alternating optimizers; compare other plans", field=DDP_HOOK_VARIABLE)
    is_ours = not dist.is_initialized()
    if is_ours:
        where = environment.master_address, environment.master_port, environment.rank, environment.num_ranks
        timeout = load_job_file(environment.job).spec.communication.timeout
        backend = "nccl" if next(model.parameters()).is_cuda else "gloo"
        process_group.form(backend, *where, timeout, secret=secret_of(environment, os.environ))
    recorder = Recorder(environment.run_directory if environment.rank == 0 else None)
    session = DdpSession(model, optimizers, hook, recorder, replace(options, seed=environment.seed))
    if is_ours:
        session.when_closed.callback(_leave_together)
    return session


def _leave_together() -> None:
    """Leave torch's process group, once every rank has come here.

    Otherwise threads of the group abort a process that ends, and rank 0 holds the others' store. Even so one process in
    80 was aborted on a busy machine: DDP's reducer keeps the group, and Gloo's threads with it, after both have been
    given up (torch 2.15).
    """
    dist.barrier()
    dist.destroy_process_group()


class DdpRanks(RankOps):
    """Operations over the ranks of torch's process group, for the script."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def rank(self) -> int:
        """Rank of this process in torch's process group."""
        return dist.get_rank()

    @property
    def num_ranks(self) -> int:
        """The size of torch's process group."""
        return dist.get_world_size()

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        dist.barrier()

    def all_reduce(self, value: float | Tensor, op: Literal["mean", "sum", "max", "min"] = "mean") -> float | Tensor:
        """Reduce a metric over all ranks, as `RankOps.all_reduce` does."""
        if op not in _OPERATIONS:
            raise UserError("must be mean, sum, max or min", field="op", value=op)
        reduced = to_reduce(value).clone()
        dist.all_reduce(reduced, _OPERATIONS[op])
        reduced = reduced / self.num_ranks if op == "mean" else reduced
        result: float | Tensor = as_handed_over(value, reduced)
        return result


class DdpSession(Session):
    """The loop's object where DDP exchanges: it shards batches, steps, and records what DDP's steps took."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        hook: str,
        recorder: Recorder,
        options: SessionOptions,
    ) -> None:
        if isinstance(model, DistributedDataParallel):
            wrapped, inner = model, model.module
            _register(wrapped, hook, self._has_handed_over)
        else:
            wrapped, inner = wrap(model, hook, self._has_handed_over), model
        self._wrapped = wrapped
        self._name = next(name for name, each in DDP_HOOKS.items() if each == hook)
        dist.barrier()
        super().__init__(
            inner, optimizers, group=None, plan=dense_plan(), recorder=recorder, options=options, ranks=DdpRanks()
        )
        if wrapped is not model:
            self.when_closed.callback(_route(inner, wrapped))

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Return DDP's own ``no_sync``."""
        return self._wrapped.no_sync()

    def _has_handed_over(self) -> None:
        """Count time as exposed from now on: DDP has the last gradients, and the thread waits for its exchange."""
        self._training.phases.enter("exposed")

    def _metric_alone(self, loss: float | None, phases: dict[Phase, float]) -> dict[str, Any]:
        computing = sum(phases.values()) - phases["exposed"]
        return {**super()._metric_alone(loss, phases), "compute_seconds": computing, "plan": self._name}


def _route(model: nn.Module, wrapped: DistributedDataParallel) -> Any:
    """Make a call of the model one of its wrapper, where gradients are recorded; return what undoes it.

    A script that calls the model that it has made trains by DDP so, and its evaluation on one rank alone does not.
    """
    kind, is_inside = type(model), False

    class Routed(kind):  # type: ignore[misc, valid-type]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_inside
            if is_inside or self is not model or not torch.is_grad_enabled():
                return super().__call__(*args, **kwargs)
            is_inside = True
            try:
                return wrapped(*args, **kwargs)
            finally:
                is_inside = False

    def undo() -> None:
        model.__class__ = kind

    model.__class__ = Routed
    return undo
