"""A fusion planner of one's own: a buffer for each tensor. From what is known of the model to cuts."""

from collections.abc import Sequence
from itertools import accumulate

from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.profile import Profile
from trimtab_api import catalogue


def a_buffer_each(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """Cut before every tensor; ``tensor_sizes`` are numbers of elements in backward order.

    ``profile`` has the tensors' backward times, ``costs`` what a buffer of so many elements takes.
    """
    return (0, *sorted(set(accumulate(tensor_sizes)) - {0, sum(tensor_sizes)}))


def register() -> None:
    catalogue.planners.add(catalogue.Row("layers", "a buffer for each tensor", "layers:a_buffer_each"))
