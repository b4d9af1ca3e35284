"""Training by rounds of local steps: every rank steps by itself, and at a round's end updates are exchanged.

A round begins at weights that all ranks have in common: those of the last exchange, or weights that a script loads.
Updates cross now or under the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.gradient_sync import GradientSync
from trimtab.engine.gradients.uncompiled_hook import ModuleHook, unscripted_parts
from trimtab.engine.local_sgd.buffer_sync import average_buffers
from trimtab.engine.local_sgd.local_sgd import LocalSgd
from trimtab.engine.local_sgd.overlapped import OverlappedLocalSgd
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.engine.profiling.profiler import StepProfiler
from trimtab.engine.sync_mode import SyncMode
from trimtab.plan.plan import ANNOUNCE_STEPS_BEFORE_SYNC, Plan


class LocalSgdSync(SyncMode):
    """The rounds of one engine; `local` is None while the plan has none."""

    def __init__(
        self,
        model: nn.Module,
        exchanger: Exchanger,
        gradient_sync: GradientSync,
        *,
        scale: LossScale,
        plan_ahead: Callable[[], Callable[[], Plan | None]],
        profiler: StepProfiler | None,
    ) -> None:
        """Prepare rounds of local steps; they begin with `enter`.

        Args:
            model: The model, whose weights a script may load between two rounds.
            exchanger: The exchange of the present plan.
            gradient_sync: Exchanges updates as it does gradients.
            scale: The loss scale, on which ranks agree where a round ends.
            plan_ahead: Begins to tell all ranks of rank 0's new plan; its result waits for that.
            profiler: Profiles this rank's steps; None: nobody does.
        """
        self.local: LocalSgd | None = None
        """The round under way, while the plan has local steps."""
        self._model, self._exchanger, self._gradient_sync = model, exchanger, gradient_sync
        self._scale, self._plan_ahead, self._profiler = scale, plan_ahead, profiler
        self._flat_buffers = exchanger.flat_buffers
        self._told: Callable[[], Plan | None] | None = None
        """Waits for the plan, if any, that rank 0 tells of before the present round is exchanged."""
        loaded = ModuleHook(self._loaded)
        self._handles = [part.register_load_state_dict_post_hook(loaded) for part in unscripted_parts(model)]

    def enter(self, plan: Plan) -> None:
        """Begin the rounds of ``plan`` at the present weights, which all ranks have in common; or none."""
        rounds = OverlappedLocalSgd if plan.overlaps_rounds else LocalSgd
        self.local = rounds(self._flat_buffers, plan.local_steps) if plan.local_steps else None

    def close(self) -> None:
        """Let go of the model."""
        for handle in self._handles:
            handle.remove()

    def before_optimizer(self, optimizer: torch.optim.Optimizer | None) -> Outcome:
        """See `SyncMode.before_optimizer`; a local step takes this rank's own gradients as they are."""
        names = () if self._scale.is_scaling else self._round.non_finite_gradients()
        return Outcome.of_local_step(names)

    def after_optimizer(self, outcome: Outcome) -> Outcome:
        """See `SyncMode.after_optimizer`; the last step of a round ends with the exchange of its update."""
        local, plan = self._round, self._exchanger.plan
        local.count_step()
        if not local.is_round_over:
            may_be_told = plan.accepts_early_announcement and not self._exchanger.step_tag.trial
            if may_be_told and local.num_steps - local.num_taken == ANNOUNCE_STEPS_BEFORE_SYNC:
                self._told = self._plan_ahead()
            return outcome
        ended = self._exchange(local)
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.dispatcher.begin_round()
        return replace(ended, non_finite=ended.non_finite or outcome.non_finite)

    def synchronize(self) -> None:
        """See `SyncMode.synchronize`: gradients are this rank's own."""

    def discard(self) -> None:
        """See `SyncMode.discard`: nothing was exchanged."""

    def compared_weights(self) -> Iterable[Tensor]:
        """See `SyncMode.compared_weights`: those with which the round began."""
        return [self._round.anchor]

    def flush(self) -> Outcome | None:
        """Exchange all that local steps have made and the anchor does not have; return None if there is nothing."""
        outcome = None
        while self.local is not None and self.local.is_under_way:
            before, outcome = outcome, self._exchange(self.local)
            if before is not None:
                outcome = replace(outcome, non_finite=before.non_finite or outcome.non_finite)
        if outcome is None:
            return None
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.buckets.clear()  # of the empty round that brought the last one in
        self._flat_buffers.release_gradients()
        return outcome

    def stash(self) -> None:
        """Make ranks' weights alike before a trial, without what is under way, until that is loaded again."""
        if self.local is not None and self._exchanger.plan.overlaps_rounds:
            self.cancel_in_flight()
            self.local.rollback()
            self._exchanger.buckets.clear()

    def cancel_in_flight(self) -> None:
        """Wait for what is under way, and drop it: its trial has been undone, or the session is over."""
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.pending_exchanges.wait()
            self._exchanger.schemes.discard()

    @property
    def _round(self) -> LocalSgd:
        assert self.local is not None, "the plan has local steps"
        return self.local

    def _loaded(self, *_: object) -> None:
        """Begin the round at weights that the script has loaded, as every rank does: they are no update.

        Within a round they cannot be told from one: a script that evaluates averaged weights loads its own again.
        """
        if self.local is not None and not self.local.is_under_way:
            self.local.set_anchor()

    def _adopt(self, plan: Plan) -> None:
        """Exchange the round under way by ``plan``, whose rounds follow; what is held back stays, in its unit."""
        self._exchanger.adopt(plan)
        self._exchanger.restart(self._exchanger.step_tag.step)
        self._round.last(plan.local_steps)
        if self._profiler is not None:
            self._profiler.restart()

    def _exchange(self, local: LocalSgd) -> Outcome:
        told, self._told = self._told, None
        if told is not None and (plan := told()) is not None:
            self._adopt(plan)
        made, overlaps = local.num_taken, self._exchanger.plan.overlaps_rounds
        if not overlaps:
            self._exchanger.cover_steps(made)
        local.put_updates()
        outcome = self._gradient_sync.finish_exchange()
        if overlaps:
            self._exchanger.cover_steps(made)  # of the exchange after this one, which is theirs
        if outcome.is_finite:
            if (outer := self._exchanger.schemes.outer) is not None:
                outer.take()
            local.apply()
        else:
            local.rollback()
            if overlaps:
                self._exchanger.buckets.clear()  # what was made on top of what is dropped goes with it
        self._scale.agree(average_buffers(self._model, self._exchanger.group, beside=self._scale.own()))
        return outcome
