"""Sessions of ranks that have met in a process group."""

from __future__ import annotations

from typing import Any

from torch import nn
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group


def attach(
    model: nn.Module, optimizer: Any, plan: Plan | str, recorder: Recorder | None = None, **options: Any
) -> Session:
    """A session of a plan, or of a plan's text in two buffers."""
    if isinstance(plan, str):
        plan = Plan.parse(plan, FusionPlan((0, 20)))
    client = options.pop("control_client", None)
    return Session(
        model,
        optimizer,
        group=Group.connect(),
        plan=plan,
        recorder=recorder or Recorder(None),
        options=SessionOptions(**options),
        control_client=client,
    )
