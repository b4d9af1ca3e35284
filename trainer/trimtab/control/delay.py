"""How many more steps than dense a run needs because error feedback delays gradients.

Nothing is lost: what a step does not send waits in the residual. With gain g, the residual's norm is ``sqrt(1/g - 1)``
times that of what was sent, and training stays behind dense training by a number of steps that grows with it. It is
the same number whatever the learning rate, and however long the job trains (docs/decisions/time-to-target.md).
"""

from __future__ import annotations

from trimtab.plan import Plan

#: Steps of delay where the residual is as large as what was sent; more where all ranks send what one of them selected,
#: for what that one passes over is held back everywhere.
_DELAY_STEPS, _DELAY_STEPS_OF_SHARED = 1.5, 2.5
#: The power of the residual's relative norm with which they grow: between that of gradients that all point one way, 2,
#: and of such as have nothing in common, 1.
_POWER = 1.5
#: Steps of the run that the delay is taken as a share of. Nobody knows how long it will be, and most are longer; but at
#: the edge of the learning rates that a model bears, late gradients do harm for as long as it trains.
_RUN_STEPS = 200


def relative_steps(plan: Plan, gain: float) -> float:
    """Steps to the target over dense's, for a plan of this gain."""
    if plan.is_dense:
        return 1.0
    delay: float = (_DELAY_STEPS_OF_SHARED if plan.shares_indices else _DELAY_STEPS) * (1 / gain - 1) ** (_POWER / 2)
    return 1 + delay / _RUN_STEPS
