"""Where rounds of local steps begin and end: at weights that a script loads, and with an exchange of updates.

Updates cross now or under the next round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.gradients.uncompiled_hook import ModuleHook
from trimtab.engine.local_sgd.buffer_sync import average_buffers
from trimtab.engine.local_sgd.local_sgd import LocalSgd
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import ANNOUNCE_STEPS_BEFORE_SYNC, Plan


class RoundExchange:
    """Ends the rounds of one engine, and has them begin at weights that the script loads between two of them."""

    def __init__(
        self,
        model: nn.Module,
        flat_buffers: FlatBuffers,
        exchanger: Exchanger,
        finish: Callable[[], Outcome],
        present: Callable[[], LocalSgd | None],
        scale: LossScale,
        plan_ahead: Callable[[], Callable[[], Plan | None]],
        adopt: Callable[[Plan], None],
    ) -> None:
        """``finish`` waits for the exchange, and commits or drops it; ``present`` gives the rounds of the plan.

        Ranks agree on ``scale`` where a round ends.
        ``plan_ahead`` begins to tell all ranks of rank 0's new plan, which its result waits for; ``adopt`` follows one
        within a round.
        """
        self._model, self._flat_buffers, self._exchanger, self._finish, self._scale = (
            model,
            flat_buffers,
            exchanger,
            finish,
            scale,
        )
        self._present, self._plan_ahead, self._adopt = present, plan_ahead, adopt
        self._told: Callable[[], Plan | None] | None = None
        """Waits for the plan, if any, that rank 0 tells of before the present round is exchanged."""
        parts = [part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule)]
        loaded = ModuleHook(self._loaded)
        self._handles = [part.register_load_state_dict_post_hook(loaded) for part in parts]

    def close(self) -> None:
        """Let go of the model."""
        for handle in self._handles:
            handle.remove()

    def _loaded(self, *_: object) -> None:
        """The script has loaded weights, as every rank does. They are no update, of which compression sends a part.

        Within a round they cannot be told from one: a script that evaluates averaged weights loads its own again.
        """
        local = self._present()
        if local is not None and not local.is_under_way:
            local.set_anchor()

    def stepped(self, local: LocalSgd) -> None:
        """A local step has ended that was not the round's last."""
        is_told = self._exchanger.plan.accepts_early_announcement and not self._exchanger.step_tag.trial
        if is_told and local.num_steps - local.num_taken == ANNOUNCE_STEPS_BEFORE_SYNC:
            self._told = self._plan_ahead()

    def end(self, local: LocalSgd) -> Outcome:
        """End a round that another follows, under which its updates may cross."""
        outcome = self._exchange(local)
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.sending.begin_round()
        return outcome

    def flush(self, local: LocalSgd) -> Outcome | None:
        """Exchange all that local steps have made and the anchor does not have; None where there is nothing."""
        outcome = None
        while local.is_under_way:
            before, outcome = outcome, self._exchange(local)
            if before is not None:
                outcome = replace(outcome, non_finite=before.non_finite or outcome.non_finite)
        if outcome is None:
            return None
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.buckets.clear()  # of the empty round that brought the last one in
        self._flat_buffers.release_gradients()
        return outcome

    def stash(self, local: LocalSgd | None) -> None:
        """Before a trial: ranks' weights are alike, without what is under way, until that is loaded again."""
        if local is not None and self._exchanger.plan.overlaps_rounds:
            self.cancel_in_flight()
            local.rollback()
            self._exchanger.buckets.clear()

    def cancel_in_flight(self) -> None:
        """Nothing is to come of what is under way: its trial has been undone, or the session is over."""
        if self._exchanger.plan.overlaps_rounds:
            self._exchanger.pending_exchanges.wait()
            self._exchanger.schemes.discard()

    def _exchange(self, local: LocalSgd) -> Outcome:
        told, self._told = self._told, None
        if told is not None and (plan := told()) is not None:
            self._adopt(plan)
        made, overlaps = local.num_taken, self._exchanger.plan.overlaps_rounds
        if not overlaps:
            self._exchanger.num_steps = made
        local.put_updates()
        outcome = self._finish()
        if overlaps:
            self._exchanger.num_steps = made  # of the exchange after this one, which is theirs
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
