"""A pass over a long vector on the CPU, shared among the cores that this process may use (`torch.get_num_threads`)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

Found = TypeVar("Found")
Span = tuple[int, int]
"""The elements ``first .. stop - 1``."""

#: Fewer elements are passed over in less time than it takes to wake a thread for them, some tenths of a millisecond.
FEWEST_OF_A_CORE = 1 << 20


def spans_of(num_elements: int) -> list[Span]:
    """One for each core, as long as each other to one element, in order; a single one for a short vector."""
    num_spans = max(1, min(torch.get_num_threads(), num_elements // FEWEST_OF_A_CORE))
    stops = [num_elements * number // num_spans for number in range(num_spans + 1)]
    return list(pairwise(stops))


def on_cores(passes: list[Callable[[], Found]]) -> list[Found]:
    """What each pass returned; they must not hold the interpreter's lock. The first runs on the calling thread."""
    others = [_pool(len(passes) - 1).submit(each) for each in passes[1:]]
    return [passes[0](), *(each.result() for each in others)]


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="trimtab-kernels")
