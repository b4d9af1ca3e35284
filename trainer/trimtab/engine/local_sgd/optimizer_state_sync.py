"""Optimizers' state, made the same on all ranks where they go back from local steps to gradients.

Moments are averaged. What has no mean, such as codes of eight bits or lists of bases, is rank 0's on all, and so is
what else that parameter's state holds, for it belongs together. So are learning rates, and other numbers that an
optimizer or a scheduler keeps in the groups.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from trimtab_api.errors import UserError

from trimtab.engine.local_sgd.state_leaves import layout, numbers_of, tensors_of, with_numbers
from trimtab.transport.base import malformed
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, broadcast_tensors, gather_json, json_of
from trimtab.transport.primitives import ring_all_reduce

#: How many steps a parameter has taken, by the name that torch's optimizers and most others give it.
_COUNT = "step"
#: Keys of a group that hold no numbers of the optimizer's own.
_MEMBERS = ("params", "param_names")
_REMEDY = "forbid local steps (communication.localSteps: {max: 0})"


@dataclass(frozen=True)
class _Told:
    """A rank's description of one optimizer."""

    kinds: list[str]
    groups: str
    mistake: str | None
    numbers: dict[str, list[bool | int | float]] | None = None
    """Rank 0's alone."""


_TOLD: Read[list[_Told]] = json_of(list[_Told])
#: A dictionary, and a key of it.
_Place = tuple[dict[Any, Any], Any]


@torch.no_grad()
def share_state(
    names: Sequence[str], parameters: Sequence[Tensor], optimizers: Sequence[torch.optim.Optimizer], group: Group
) -> None:
    """Make the optimizers' state of ``parameters`` the same on every rank.

    A parameter's state of float tensors, and of the steps that it has taken, is the mean over ranks, the same bits on
    each; one that holds anything else is rank 0's, and so are numbers and tensors of the groups. A parameter that not
    every rank has the same moments of, or any state (some never had a gradient of it), begins anew.

    Args:
        names: The parameters' names, for errors.
        parameters: The parameters that ranks exchange.
        optimizers: Every optimizer, in the same order on all ranks.
        group: The ranks; all call it together.

    Raises:
        UserError: What is to be rank 0's has another structure on some rank; raised on every rank.
    """
    kept = [_Kept(each, names, parameters) for each in optimizers]
    own = [asdict(_Told(each.kinds, each.groups, each.mistake)) for each in kept]
    if group.rank == 0:
        own = [{**told, "numbers": each.numbers()} for told, each in zip(own, kept, strict=True)]
    everyones = gather_json(group, own, partial(_told_of, kept))
    averaged: list[_Place] = []
    whole: list[Tensor] = []
    for index, each in enumerate(kept):
        told = [rank[index] for rank in everyones]
        each.check(told)
        each.begin_anew(told)
        averaged += each.averaged()
        try:
            whole += each.take(told[0].numbers or {})
        except (KeyError, StopIteration):
            raise malformed(0, "too few numbers of its optimizers") from None
    _average(averaged, group)
    broadcast_tensors(group, whole)


def _told_of(kept: Sequence[_Kept], text: bytes) -> list[_Told]:
    """Read what a rank tells of its optimizers.

    Raises:
        ValueError: It tells of more or fewer optimizers or parameters than are ``kept`` here.
    """
    everything = _TOLD(text)
    for told, own in zip(everything, kept, strict=True):
        if len(told.kinds) != len(own.kinds):
            raise ValueError
    return everything


def why_not_common(
    names: Sequence[str], parameters: Sequence[Tensor], optimizers: Sequence[torch.optim.Optimizer]
) -> str | None:
    """Return why `share_state` would refuse what this rank's optimizers keep, were other ranks' alike; or None."""
    return next((each.mistake for each in (_Kept(one, names, parameters) for one in optimizers) if each.mistake), None)


class _Kept:
    """State that one optimizer keeps on this rank."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: Sequence[str], parameters: Sequence[Tensor]) -> None:
        self._name, self._state = type(optimizer).__name__, optimizer.state
        self._names, self._parameters = names, parameters
        self.mistake: str | None = None
        """Why this rank cannot take over another's state; None where it can."""
        self.kinds = [self._kind(*each) for each in zip(names, parameters, strict=True)]
        """By parameter: empty without state, else how it is made alike, "mean" or "whole", and a digest of its form."""
        loose: list[_Place] = [(optimizer.state, key) for key in optimizer.state if not isinstance(key, Tensor)]
        in_groups: list[_Place] = [
            (group, key) for group in optimizer.param_groups for key in group if key not in _MEMBERS
        ]
        forms = [(held, key, _form_of(held[key], str(key))) for held, key in sorted(loose, key=_name_of) + in_groups]
        self._shared = [(held, key) for held, key, form in forms if form is not None]
        self.groups = _digest(" ".join(form for _, _, form in forms if form is not None))
        """A digest of the form of what the groups hold."""

    def _kind(self, name: str, parameter: Tensor) -> str:
        held = {key: value for key, value in self._state.get(parameter, {}).items() if value is not None}
        if not held:
            return ""
        if all(_is_averaged(*each) for each in held.items()):
            forms = (f"{key}{list(getattr(held[key], 'shape', ()))}" for key in sorted(held, key=str))
            return f"mean {_digest(' '.join(forms))}"
        try:
            return f"whole {_digest(layout(held, ''))}"
        except UserError as error:
            self.mistake = self.mistake or f"{self._name}, {name}{error}"
            return "whole"

    def check(self, told: Sequence[_Told]) -> None:
        """Raise `UserError` if a rank cannot take over rank 0's state; ``told`` is what each rank tells of its own."""
        for rank, its in enumerate(told):
            if its.mistake is not None:
                raise UserError(f"of rank {rank}: {its.mistake}; {_REMEDY}", field="optimizer state")
            if its.groups != told[0].groups:
                self._refuse(rank, "param_groups")
            for name, kind, first in zip(self._names, its.kinds, told[0].kinds, strict=True):
                if kind and first and kind != first and "whole" in kind + first:
                    self._refuse(rank, f"the state of {name}")

    def _refuse(self, rank: int, what: str) -> None:
        raise UserError(
            f"rank {rank} holds other things than rank 0 in {what}, so it cannot take them over; {_REMEDY}",
            field="optimizer",
            value=self._name,
        )

    def begin_anew(self, told: Sequence[_Told]) -> None:
        """Forget the state of parameters that not all ranks have alike."""
        for index, parameter in enumerate(self._parameters):
            if any(each.kinds[index] != self.kinds[index] for each in told):
                self._state.pop(parameter, None)
                self.kinds[index] = ""

    def averaged(self) -> list[_Place]:
        """Return where state that has a mean lies: a parameter's state, and a key of it."""
        states = [self._state[parameter] for parameter in self._of_kind("mean").values()]
        return [(held, key) for held in states for key in sorted(held, key=str) if held[key] is not None]

    def numbers(self) -> dict[str, list[float]]:
        """Return this rank's numbers of all that rank 0 decides: by the parameter's index, and of the groups."""
        own = {str(index): numbers_of(self._state[each]) for index, each in self._of_kind("whole").items()}
        return own | {"groups": [number for held, key in self._shared for number in numbers_of(held[key])]}

    def take(self, numbers: Mapping[str, list[float]]) -> list[Tensor]:
        """Take over rank 0's ``numbers``; return the tensors in which rank 0's are still to come."""
        whole = self._of_kind("whole")
        for index, parameter in whole.items():
            with_numbers(self._state[parameter], iter(numbers[str(index)]))
        left = iter(numbers["groups"])
        for held, key in self._shared:
            held[key] = with_numbers(held[key], left)
        values = [*(self._state[each] for each in whole.values()), *(held[key] for held, key in self._shared)]
        return [tensor for value in values for tensor in tensors_of(value)]

    def _of_kind(self, kind: str) -> dict[int, Tensor]:
        return {index: self._parameters[index] for index, each in enumerate(self.kinds) if each.startswith(kind)}


def _is_averaged(key: Any, value: Any) -> bool:
    """Return whether state has a mean: a float tensor that does not stand for codes, or a parameter's step count."""
    if isinstance(value, Tensor):
        is_moment = value.is_floating_point() and value.element_size() > 1
        return (is_moment or (key == _COUNT and value.numel() == 1)) and not is_traceable_wrapper_subclass(value)
    return key == _COUNT and isinstance(value, (int, float))


def _average(places: Sequence[_Place], group: Group) -> None:
    """Make what lies in each of ``places`` the mean over ranks; whole numbers are rounded."""
    if not places:
        return
    # A step count is small, and exact in float32; whatever is kept in another type is averaged in this one.
    device = group.transport.device
    values = [_tensor_of(held[key]) for held, key in places]
    sums = [each.detach().to(device=device, dtype=torch.float32).contiguous().clone().view(-1) for each in values]
    group.submit(lambda: ring_all_reduce(group.transport, sums)).result()
    for (held, key), value, total in zip(places, values, sums, strict=True):
        mean = (total / group.size).view_as(value)
        value.copy_(mean if value.is_floating_point() else mean.round())
        if not isinstance(held[key], Tensor):
            held[key] = value.item()


def _tensor_of(value: Tensor | float) -> Tensor:
    """Return a step count as a tensor; a float becomes float64 and an int int64, which hold it exactly."""
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)


def _form_of(value: Any, name: str) -> str | None:
    """Return the form of a group's entry; None if ranks cannot take it over, such as a function."""
    try:
        return layout(value, name)
    except UserError:
        return None


def _name_of(place: _Place) -> str:
    return str(place[1])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


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
