"""What a session holds back, by its debug state, as one vector: the last parameter first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from trimtab.session.session import Session


def in_one(held: Mapping[str, Tensor]) -> Tensor:
    """What is held of each parameter, one after the other."""
    return torch.cat([each.flatten() for each in held.values()])


def residual_of(session: Session) -> Tensor:
    """What compression holds back on this rank."""
    return in_one(session.debug_state().residual)


def total_of(session: Session, *kinds: str) -> Tensor:
    """What is held in ways such as ``residual`` and ``waiting``, added up in float64."""
    state = session.debug_state()
    totals = {name: torch.zeros(each.shape, dtype=torch.float64) for name, each in state.residual.items()}
    for kind in kinds:
        for name, each in getattr(state, kind).items():
            totals[name] += each.double()
    return in_one(totals)


def anchor_of(session: Session) -> Tensor:
    """The weights with which the present round of local steps began."""
    return in_one(session.debug_state().anchor)
