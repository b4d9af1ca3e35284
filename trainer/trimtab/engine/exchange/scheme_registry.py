"""The collectives and sparsifiers that plans have used so far, and the state that is carried from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab import collectives, sparsifiers
from trimtab.collectives.base import Collective, Ranges
from trimtab.engine.exchange.outer_optimizer import OuterOptimizer
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.gradients.momentum_correction import MomentumCorrection
from trimtab.plan.plan import Plan
from trimtab.sparsifiers.base import Selector, Sent
from trimtab.transport.group import Group


class Schemes:
    """Collectives and sparsifiers, each made when a plan first names it; and the velocities of a plan's momentum."""

    def __init__(self, group: Group, flat_buffers: FlatBuffers) -> None:
        self._group, self._flat_buffers = group, flat_buffers
        self.velocity: MomentumCorrection | None = None
        """The velocity, which takes the gradient's place under a plan that corrects momentum."""
        self.outer: OuterOptimizer | None = None
        """The outer optimizer, under a plan that names one."""
        self._collectives: dict[str, Collective] = {}
        self._selectors: dict[str, Selector] = {}

    def adopt(self, plan: Plan, old: Ranges, new: Ranges) -> None:
        """Have ready what ``plan`` names; the buckets' ranges change from ``old`` to ``new``."""
        if list(old) != list(new):
            for collective in self._collectives.values():
                collective.rebucket(old, new)
        if plan.collective not in self._collectives:
            self._collectives[plan.collective] = collectives.create(plan.collective, self._group)
        if not plan.is_dense and plan.sparsifier not in self._selectors:
            self._selectors[plan.sparsifier] = sparsifiers.create(plan.sparsifier)
        if not plan.momentum:
            self.velocity = None
        elif self.velocity is None:
            self.velocity = MomentumCorrection(self._flat_buffers)
        if plan.outer_step is None:
            self.outer = None
        elif self.outer is None or (self.outer.rate, self.outer.momentum) != plan.outer_step:
            self.outer = OuterOptimizer(self._flat_buffers, *plan.outer_step)

    def of(self, plan: Plan) -> tuple[Collective, Selector | None]:
        """Return the collective and the sparsifier of ``plan``; a dense plan has no sparsifier."""
        return self._collectives[plan.collective], None if plan.is_dense else self._selectors[plan.sparsifier]

    def commit(self, plan: Plan, sent: Sequence[Sent]) -> None:
        """Keep what the exchanges of this iteration proposed; ``sent`` is what became of the selections of ``plan``."""
        _, selecting = self.of(plan)
        for collective in self._collectives.values():
            collective.commit()
        for selector in self._selectors.values():
            selector.commit(sent if selector is selecting else ())
        if self.velocity is not None:
            self.velocity.commit(sent)

    def discard(self) -> None:
        """Forget what the exchanges of this iteration proposed."""
        for collective in self._collectives.values():
            collective.discard()
        for selector in self._selectors.values():
            selector.discard()

    def state_dict(self) -> dict[str, Any]:
        """Return the committed state of each scheme, by name."""
        return {
            "collectives": {name: each.state_dict() for name, each in self._collectives.items()},
            "sparsifiers": {name: each.state_dict() for name, each in self._selectors.items()},
            "velocity": None if self.velocity is None else self.velocity.state(),
            "outer": None if self.outer is None else self.outer.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned; other schemes are dropped, as if no plan had used them."""
        self._collectives = {name: each for name, each in self._collectives.items() if name in state["collectives"]}
        self._selectors = {name: each for name, each in self._selectors.items() if name in state["sparsifiers"]}
        for name, held in state["collectives"].items():
            if name not in self._collectives:
                self._collectives[name] = collectives.create(name, self._group)
            self._collectives[name].load_state_dict(held)
        for name, held in state["sparsifiers"].items():
            if name not in self._selectors:
                self._selectors[name] = sparsifiers.create(name)
            self._selectors[name].load_state_dict(held)
        if self.velocity is not None:
            self.velocity.load(state["velocity"])
        if self.outer is not None:
            self.outer.load(state["outer"])
