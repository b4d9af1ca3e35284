"""What `Session.steps` is during a trial: a step without a number of its own.

A loop asks things like ``if session.steps % 100 == 0: evaluate()``. During a trial the number of steps stands still, so
that such a condition would hold again at every step of it.
"""

from __future__ import annotations

from typing import Any


class StepInTrial(int):
    """The steps taken before the trial. Prints, orders and indexes as that number does, but equals none.

    So does what is calculated from it: ``steps % 100 == 0``, ``not steps % 100`` and ``(steps + 1) % 10 == 3`` are
    never true, while ``steps >= 1000`` is what it was.
    """

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: Any) -> Any:
        return _in_trial(int.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return _in_trial(int.__radd__(self, other))

    def __sub__(self, other: Any) -> Any:
        return _in_trial(int.__sub__(self, other))

    def __mul__(self, other: Any) -> Any:
        return _in_trial(int.__mul__(self, other))

    def __rmul__(self, other: Any) -> Any:
        return _in_trial(int.__rmul__(self, other))

    def __floordiv__(self, other: Any) -> Any:
        return _in_trial(int.__floordiv__(self, other))

    def __mod__(self, other: Any) -> Any:
        return _in_trial(int.__mod__(self, other))


def _in_trial(value: Any) -> Any:
    return StepInTrial(value) if type(value) is int else value
