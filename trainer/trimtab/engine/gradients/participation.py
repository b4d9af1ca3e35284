"""Which parameters had a gradient in a step, on this rank and on all.

The optimizer must leave alone what no rank has a gradient of: an optimizer with weight decay or momentum moves whatever
``grad`` is not None. Which parameters these are changes seldom, so ranks tell each other only when it has changed on
one of them, which the step's vote says.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather

#: A parameter's part in a step.
HAS_GRADIENT, UNUSED, FROZEN = 0, 1, 2


class ParameterUsage:
    """The parameters' usage: as ranks told each other last, and as it is on this rank now."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._here = bytearray(len(names))
        self._told = bytes(self._here)
        self.unused: tuple[int, ...] = ()
        """Parameters, by index, that no rank had a gradient of."""

    def note(self, index: int, part: int) -> None:
        """Note one parameter's part in the present step."""
        self._here[index] = part

    @property
    def changed(self) -> bool:
        """True if this rank must tell the others."""
        return self._told != self._here

    def state_dict(self) -> dict[str, list[int]]:
        """Return the state in plain numbers; `unused` is the same on every rank."""
        return {"here": list(self._here), "told": list(self._told), "unused": list(self.unused)}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        """Load what `state_dict` returned."""
        self._here, self._told = bytearray(state["here"]), bytes(state["told"])
        self.unused = tuple(state["unused"])

    def agree(self, group: Group) -> None:
        """Tell all ranks of this rank's parameters, and find the unused ones; every rank calls it together.

        Raises:
            UserError: A parameter is frozen on some ranks only.
        """
        self._told = bytes(self._here)
        message = torch.frombuffer(bytearray(self._told), dtype=torch.uint8).to(group.transport.device)
        parts = group.submit(lambda: [part.clone() for part in all_gather(group.transport, message)[0]]).result()
        self.unused = self._unused_everywhere(torch.stack(parts))

    def _unused_everywhere(self, parts: Tensor) -> tuple[int, ...]:
        frozen = (parts == FROZEN).sum(dim=0)
        for index in torch.nonzero((frozen > 0) & (frozen < len(parts))).flatten().tolist():
            ranks = torch.nonzero(parts[:, index] == FROZEN).flatten().tolist()
            raise UserError(
                f"is frozen (requires_grad=False) on rank {', '.join(map(str, ranks))} and not on the others; freeze"
                " it on all ranks at the same step",
                field=f"model parameter {self._names[index]}",
            )
        return tuple(torch.nonzero((parts != HAS_GRADIENT).all(dim=0)).flatten().tolist())
