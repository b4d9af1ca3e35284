"""How many training steps a session has taken, and what `Session.steps` is during a trial.

A loop asks things like ``if session.steps % 100 == 0: evaluate()``. During a trial the number of steps stands still, so
that such a condition would hold again at every step of it.
"""

from __future__ import annotations

from typing import Any


class StepCounter:
    """Counts the training steps of one session; those of trials are none."""

    def __init__(self) -> None:
        self.num = 0

    def count(self) -> None:
        """Count one more."""
        self.num += 1

    def go_to(self, num: int) -> None:
        """Go on from ``num`` steps."""
        self.num = num


class StepInTrial(int):
    """The steps taken before the trial. Prints, orders and indexes as that number does, but equals none.

    So does every whole number that is calculated from it: ``steps % 100 == 0``, ``not steps % 100`` and
    ``(steps + 1) % 10 == 3`` are never true, while ``steps >= 1000`` is what it was. ``int(steps)``, a division to a
    fraction and NumPy take it for the plain number.
    """

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __bool__(self) -> bool:
        return True

    def __neg__(self) -> Any:
        return StepInTrial(int.__neg__(self))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return StepInTrial(int.__abs__(self))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other


def _in_trial(name: str) -> Any:
    """Return an operator of int whose whole result is in the trial as well."""
    operator = getattr(int, name)

    def apply(self: int, other: Any) -> Any:
        value = operator(self, other)
        return StepInTrial(value) if type(value) is int else value

    return apply


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
    setattr(StepInTrial, f"__{_name}__", _in_trial(f"__{_name}__"))
    setattr(StepInTrial, f"__r{_name}__", _in_trial(f"__r{_name}__"))
