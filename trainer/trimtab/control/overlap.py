"""How long a step takes when buffers cross the network while backward still runs."""

from __future__ import annotations

from collections.abc import Sequence

#: Share of the computation that has passed when backward begins: a forward costs half a backward.
FORWARD_SHARE = 1 / 3


def step_seconds(compute_seconds: float, shares: Sequence[float], exchange_seconds: Sequence[float]) -> float:
    """Wall time of a step under wait-free backpropagation, one exchange after another.

    ``shares`` are each buffer's part of the gradient (they sum to 1), in backward order: a buffer is ready once that
    much of backward has passed, which takes the layers' time to go with their size. ``exchange_seconds`` are each
    buffer's selection and collective. One buffer hides nothing.
    """
    done, passed = 0.0, 0.0
    for share, seconds in zip(shares, exchange_seconds, strict=True):
        passed += share
        ready = compute_seconds * (FORWARD_SHARE + (1 - FORWARD_SHARE) * min(1.0, passed))
        done = max(done, ready) + seconds
    return max(done, compute_seconds)
