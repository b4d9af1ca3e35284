"""What a training script may ask of rounds of local steps, within which every rank has weights of its own.

session.end_round()                     # every rank: all have the same weights afterwards
with session.anchor():                  # any rank: those with which the round began, the same on every rank
    torch.save(model.state_dict(), path)
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator

from trimtab_api.errors import UserError

from trimtab.engine.step_engine import StepEngine
from trimtab.session.rank_ops import RankOps


class LocalRounds(RankOps):
    """One process among ranks that take local steps."""

    _engine: StepEngine | None
    is_closed: bool

    @property
    @abstractmethod
    def in_trial(self) -> bool:
        """Whether the present steps will be undone."""

    @abstractmethod
    def _end_round(self) -> None:
        """Exchange what local steps have done so far, and record it."""

    def end_round(self) -> None:
        """Bring together what ranks have trained by themselves; afterwards all have the same weights.

        Every rank calls it after the same step. Loops over `Session.batches` do, where they end or are left. Nothing
        happens where no local step has been taken since the last exchange, or the session is closed.
        """
        if self._engine is not None and not self.is_closed and not self.in_trial:
            self._end_round()

    @contextlib.contextmanager
    def anchor(self) -> Iterator[None]:
        """Inside, the model has the weights with which the present round began: the same on every rank.

        Any rank may enter it by itself, between two steps, to evaluate or save what all agree on. Afterwards the rank
        has its own weights again. Where gradients are exchanged in every step it changes nothing. Float buffers stay
        the rank's own.

        Raises `UserError` after a backward pass whose step has not been taken.
        """
        if self._engine is None:
            yield
            return
        if self._engine.pending_step.has_begun:
            raise UserError("comes between two steps; enter it after the step", field="session.anchor")
        with self._engine.at_anchor():
            yield
