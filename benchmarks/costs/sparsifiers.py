"""How many elements each sparsifier sends of what it was asked for, and in what time.

    python benchmarks costs/sparsifiers

By its own threshold alone, and after bounds have been applied: on three distributions, and on gradients of the digits
while a network trains on them by what that sparsifier sends, with error feedback. One core; times are medians of
processor time, which other load on the machine moves least, as shares of exact top-k's in the same run.

Needs nothing more; takes three minutes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from digits_training import Training
from torch import Tensor
from trimtab import kernels, sparsifiers
from trimtab.plan.plan import elements_to_send
from trimtab.sparsifiers import Selector
from trimtab.sparsifiers.threshold_selector import ThresholdSelector

RATIOS = (0.1, 0.01, 0.001)
NUM_ELEMENTS, NUM_GRADIENTS, CALLS = 200_000, 3, 20
DIGITS_STEPS = 60
DISTRIBUTIONS: dict[str, Callable[[int], Tensor]] = {
    "Normal": torch.randn,
    "Laplace": lambda n: torch.distributions.Laplace(0.0, 1.0).sample((n,)),
    "Student-t (3)": lambda n: torch.distributions.StudentT(3.0).sample((n,)),
}
#: A hard threshold is chosen before training: here that which 1% of a Laplace distribution reach, and a guess.
SPECS = [*sparsifiers.names(), "sidco:fit=pareto"]
HARD = {"distributions": "hard-threshold:threshold=4.6", "digits": "hard-threshold:threshold=0.02"}


class Watched:
    """A sparsifier, and the density that its own threshold would have had."""

    def __init__(self, spec: str) -> None:
        self.selector: Selector = sparsifiers.create(spec)
        self.own: list[float] = []
        self.sent: list[float] = []
        self.seconds: list[float] = []
        if isinstance(self.selector, ThresholdSelector):
            reached = self.selector._reached

            def watch(key: tuple[int, int], k: int, num_over: int) -> None:
                self.own.append(num_over / k)
                reached(key, k, num_over)

            self.selector._reached = watch  # type: ignore[method-assign]

    def compress(self, grad: Tensor, residual: Tensor, next_residual: Tensor, k: int) -> sparsifiers.Selected:
        began = time.thread_time()
        found = self.selector.compress(grad, residual, next_residual, (0, grad.numel()), (k,))
        self.seconds.append(time.thread_time() - began)
        self.selector.commit()
        self.sent.append(found.indices.numel() / k)
        return found

    def row(self, beside: float) -> str:
        sent, own = sorted(self.sent), sorted(self.own)
        alone = f"{own[0]:.2f} to {own[-1]:.2f}, last {self.own[-1]:.2f}" if own else "as sent"
        return f"{alone} | {sent[0]:.2f} to {sent[-1]:.2f} | {statistics.median(self.seconds) / beside:.2f}"


def on_distributions(ratio: float) -> Iterator[str]:
    k = elements_to_send(ratio, NUM_ELEMENTS)
    for name, draw in DISTRIBUTIONS.items():
        gradients = [draw(NUM_ELEMENTS) for _ in range(NUM_GRADIENTS)]
        residual, next_residual = torch.zeros(NUM_ELEMENTS), torch.empty(NUM_ELEMENTS)
        watched = {spec: Watched(HARD["distributions"] if spec == "hard-threshold" else spec) for spec in SPECS}
        for call in range(CALLS):
            for each in watched.values():
                each.compress(gradients[call % NUM_GRADIENTS], residual, next_residual, k)
        exact = statistics.median(watched["topk"].seconds)
        for spec, each in watched.items():
            yield f"| {name} | {ratio:g} | {spec} | {each.row(exact)} |"


def on_digits(ratio: float) -> Iterator[str]:
    exact = 0.0
    for spec in ("topk", *(spec for spec in SPECS if spec != "topk")):
        training, watched = Training(16), Watched(HARD["digits"] if spec == "hard-threshold" else spec)
        n = training.residual.numel()
        for _ in range(DIGITS_STEPS):
            next_residual, update = torch.empty(n), torch.zeros(n)
            found = watched.compress(training.gradient(), training.residual, next_residual, elements_to_send(ratio, n))
            kernels.scatter_mean(update, [(found.indices, found.values)], 1.0)
            training.step(update, next_residual)
        exact = exact or statistics.median(watched.seconds)
        yield f"| digits | {ratio:g} | {spec} | {watched.row(exact)} |"


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| gradient | ratio | sparsifier | k reached by its own threshold | k sent | time / topk |")
    print("|---|---|---|---|---|---|")
    for ratio in RATIOS:
        for line in (*on_distributions(ratio), *on_digits(ratio)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
