"""From the parameters that DistributedDataParallel trains to the session that exchanges for its hook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from trimtab_api.errors import UserError

from trimtab.ddp.bucket_session import BucketSession
from trimtab.engine.exchange.proxy_parameters import ProxyParameters
from trimtab.engine.optimizer.loss_scale import ReadScale
from trimtab.engine.optimizer.modes import ManualOptimizer
from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.plan.names import DDP_HOOK_VARIABLE
from trimtab.session.attach import AttachRequest, begin
from trimtab.session.checks import check_needs_no_closure
from trimtab.session.ddp_wrapper import skips_unused, wrapper_of
from trimtab.session.options import SessionOptions


def attach_buckets(
    parameters: Sequence[nn.Parameter],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: GradScaler | None = None,
    **configuration: Any,
) -> BucketSession:
    """Join the job, and return the session of ``parameters``, all whose gradients a wrapper's buckets hold.

    Args:
        parameters: The parameters that DDP trains.
        optimizer: What the script steps by, if known; it is only looked at.
        scaler: The script's GradScaler, which is only read.
        configuration: ``job``, ``plan`` and ``run_directory`` of `trimtab.attach`.

    Raises:
        UserError: As `trimtab.attach`, and for a plan of local steps.
    """
    if optimizer is not None:
        check_needs_no_closure(optimizer)
    wrapper = wrapper_of(parameters[0])
    theirs = {id(each) for each in parameters}
    model = ProxyParameters((name, each) for name, each in wrapper.module.named_parameters() if id(each) in theirs)
    optimizers = [ManualOptimizer(model.parameters(), known=optimizer)]
    options = SessionOptions(scale=ReadScale(scaler))
    session, _ = begin(AttachRequest(BucketSession, model, optimizers, options, _by_ddp), **configuration)
    session.skips_unused = skips_unused(wrapper)
    return session


def _by_ddp(environment: LaunchEnvironment, hook: str) -> BucketSession:
    raise UserError(
        "is a hook of torch's, and the script has registered trimtab.hook; compare other plans, such as dense",
        field=DDP_HOOK_VARIABLE,
        value=hook,
    )
