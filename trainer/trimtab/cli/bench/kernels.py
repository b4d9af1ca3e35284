"""``trimtab bench kernels``: the time of each sparsifier, against a copy of its bytes and torch.topk.

On one core, or on a GPU until it is done.

The floor of a kernel is the time in which a large copy moves 12 bytes an element: gradient and residual are read, the
new residual is written. Each round measures everything once, so that other load on the machine falls on all alike. The
times are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from trimtab_api.errors import UserError

if TYPE_CHECKING:
    from trimtab.sparsifiers import Selector

NUM_ELEMENTS = 11_700_000  # ResNet-18
RATIOS = (0.001, 0.01, 0.1)
ROUNDS = 15
BYTES_PER_ELEMENT = 12


@dataclass(frozen=True)
class Measured:
    """One line of the result."""

    kernel: str
    """``fused_select``: one pass at a known threshold. Else a sparsifier, which also finds it."""
    n: int
    """Elements of float32."""
    ratio: float
    seconds: float
    floor_ratio: float
    """Seconds over the seconds in which a copy moves 12 bytes an element."""
    speedup_over_topk: float
    """Seconds of torch.topk with the same k, on |acc| formed beforehand, over these seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab bench kernels`."""
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="one core, or the first GPU (default: cpu)"
    )
    parser.add_argument("--json", action="store_true", help="a list of objects instead of a table")


def run(args: argparse.Namespace) -> int:
    """Measure and print, as a JSON list of `Measured` or as a table; returns the exit code."""
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("torch finds no GPU here; leave it out to time one core", field="--device", value=args.device)
    lines = [line for ratio in RATIOS for line in measure(NUM_ELEMENTS, ratio, ROUNDS, args.device)]
    if args.json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
        return 0
    print(f"{'kernel':<16}{'n':>12}{'ratio':>8}{'ms':>9}{'x floor':>9}{'topk / this':>13}")
    for line in lines:
        print(
            f"{line.kernel:<16}{line.n:>12,}{line.ratio:>8g}{line.seconds * 1e3:>9.2f}{line.floor_ratio:>9.2f}"
            f"{line.speedup_over_topk:>13.1f}"
        )
    return 0


def measure(n: int, ratio: float, rounds: int, device: str = "cpu") -> list[Measured]:
    """Time the fused pass and every sparsifier on n Laplace-distributed elements: one thread, or the GPU until done."""
    import torch

    from trimtab import kernels, sparsifiers
    from trimtab.plan.plan import elements_to_send

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        grad = (torch.empty(n).exponential_() * torch.empty(n).bernoulli_(0.5).mul_(2).sub_(1)).to(device)
        residual, next_residual = (torch.randn(n) * 0.1).to(device), torch.empty(n, device=device)
        copied_from = torch.randn(n * BYTES_PER_ELEMENT // 2 // 4).to(device)  # a copy reads and writes
        copied_to = torch.zeros_like(copied_from)
        k = elements_to_send(ratio, n)
        magnitudes = (grad + residual).abs()
        threshold = float(magnitudes.topk(k).values[-1])

        def select() -> None:
            kernels.fused_select(grad, residual, next_residual, threshold, capacity=2 * k)

        def compress(selector: Selector) -> None:
            selector.compress(grad, residual, next_residual, (0, n), (k,))
            selector.commit()

        compressions = {name: partial(compress, sparsifiers.create(name)) for name in sparsifiers.names()}
        seconds = interleaved(
            {
                "copy": lambda: copied_to.copy_(copied_from),
                "torch.topk": lambda: magnitudes.topk(k, sorted=False),
                "fused_select": select,
                **compressions,
            },
            rounds,
            torch.cuda.synchronize if device == "cuda" else lambda: None,
        )
    finally:
        torch.set_num_threads(threads)
    return [
        Measured(kernel, n, ratio, taken, taken / seconds["copy"], seconds["torch.topk"] / taken)
        for kernel, taken in seconds.items()
        if kernel in ("fused_select", *compressions)
    ]


def interleaved(
    actions: dict[str, Callable[[], object]], rounds: int, finish: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Return the median seconds of each action, one of each a round, after one round that is not counted.

    ``finish`` waits for what an action has left under way.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for counted in [False] + [True] * rounds:
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            finish()
            if counted:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(durations) for name, durations in times.items()}
