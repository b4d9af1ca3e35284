"""What a training script asks of all ranks beside the exchange of gradients: who am I, wait, add up a metric."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.process.messages import LOGGER
from trimtab.session.script_numbers import as_handed_over, to_reduce
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import barrier, gather_tensor


class RankOps:
    """One process among those that train together; without a group it is the only one."""

    def __init__(self, group: Group | None) -> None:
        self._group = group
        self._said = set[str]()

    @property
    def rank(self) -> int:
        """Number of this process, 0 .. `num_ranks` - 1."""
        return self._group.rank if self._group else 0

    @property
    def num_ranks(self) -> int:
        """Number of processes that train together."""
        return self._group.size if self._group else 1

    @property
    def is_main(self) -> bool:
        """True on rank 0, which prints, saves and reports."""
        return self.rank == 0

    def say(self, what: str) -> None:
        """Print a line on stderr, once, from rank 0; nothing where there is one process."""
        if self.is_main and self.num_ranks > 1 and what not in self._said:
            self._said.add(what)
            LOGGER.info(what)

    def warn(self, what: str, /, *, on_each: bool = False) -> None:
        """Print a line once, also where one process trains: rank 0's, or with ``on_each`` any rank's of its own."""
        if (self.is_main or on_each) and what not in self._said:
            self._said.add(what)
            LOGGER.warning(f"rank {self.rank}: {what}" if on_each and self.num_ranks > 1 else what)

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        if self._group is not None:
            barrier(self._group)

    def all_reduce(self, value: float | Tensor, op: Literal["mean", "sum", "max", "min"] = "mean") -> float | Tensor:
        """Reduce a metric over all ranks, to the same bits on each; every rank calls it together.

        Args:
            value: A number, or a tensor or NumPy array of one shape on every rank. It is reduced in float64.
            op: "mean", "sum", "max" or "min". The mean of a tensor or array of whole numbers is rounded down.

        Returns:
            A float for a number; otherwise a tensor or array of the same shape, type and device.

        Raises:
            UserError: ``op`` is not known, ``value`` holds no real numbers, or shapes differ between ranks.
        """
        if op not in ("mean", "sum", "max", "min"):
            raise UserError("must be mean, sum, max or min", field="op", value=op)
        own = to_reduce(value)
        if self._group is None:
            return value if isinstance(value, Tensor) else as_handed_over(value, own)
        everyone = gather_tensor(self._group, own)
        if any(each.numel() != own.numel() for each in everyone):
            raise UserError(
                "has another number of elements on some rank; reduce what has one shape on all",
                field="value",
                value=str(list(own.shape)),
            )
        stacked = torch.stack(everyone)
        if op in ("mean", "sum"):
            total = stacked.sum(dim=0)
            reduced = total / self.num_ranks if op == "mean" else total
        else:
            reduced = stacked.amax(dim=0) if op == "max" else stacked.amin(dim=0)
        result: float | Tensor = as_handed_over(value, reduced)
        return result
