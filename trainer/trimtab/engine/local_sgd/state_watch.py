"""A check, before all rounds, that optimizers' state lets ranks go back from local steps to gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trimtab.engine.local_sgd.optimizer_state_sync import why_not_common


class StateWatch:
    """Looks at the optimizers' state once, as soon as there is any."""

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        optimizers: Sequence[torch.optim.Optimizer],
        say: Callable[[str], None],
    ) -> None:
        """``say`` takes a line for who trains, told where the state rules local steps out."""
        self._names, self._parameters, self._optimizers, self._say = names, parameters, optimizers, say
        self._has_looked = False
        self._why_not: str | None = None

    def allows_rounds(self) -> bool:
        """Return whether a controller may choose local steps."""
        if not self._has_looked and any(each.state for each in self._optimizers):
            self._has_looked = True
            self._why_not = why_not_common(self._names, self._parameters, self._optimizers)
            if self._why_not is not None:
                self._say(f"no local steps are chosen, for what the optimizer keeps: {self._why_not}")
        return self._why_not is None
