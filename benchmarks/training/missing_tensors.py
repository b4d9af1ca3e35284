"""Do tensors that fusion leaves out cost accuracy? SAFusion's observations 1 and 2, in one process.

    python benchmarks training/missing_tensors digits --seeds 1 2 3
    python benchmarks training/missing_tensors gpt --densities 0.01 --sparsifiers dgc

Four ranks with error feedback, each of which selects in each tensor by itself (ahead of fusion) or in all of them as
one buffer (behind it, fusion degree 100%). *digits*: a deep network with norms under SGD with momentum, 38 tensors, of
10 to 16,384 elements. *gpt*: the character GPT of 0.3 million parameters under AdamW. Minutes.

Needs nothing more; takes ten minutes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import pairwise, product
from statistics import mean

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from trimtab import sparsifiers
from trimtab.plan.plan import elements_to_send
from trimtab.sparsifiers.base import Selector, Sent
from trimtab.workloads import char_gpt

RANKS, HELD_OUT, LAST = 4, 360, 50


class Digits:
    """Nine hidden layers, and SGD with momentum."""

    quality = "accuracy"
    steps, batch = 200, 16

    def __init__(self, seed: int) -> None:
        data = load_digits()
        order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(seed))
        self.inputs = torch.tensor(data.data, dtype=torch.float32)[order] / 16
        self.targets = torch.tensor(data.target)[order]
        width = 128
        layers: list[nn.Module] = [nn.Linear(64, width)]
        for _ in range(8):
            layers += [nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width)]
        self.model = nn.Sequential(*layers, nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def loss(self) -> Tensor:
        """Of one rank's next batch."""
        picked = HELD_OUT + torch.randint(len(self.targets) - HELD_OUT, (self.batch,))
        return nn.functional.cross_entropy(self.model(self.inputs[picked]), self.targets[picked])

    def evaluate(self) -> float:
        guessed = self.model(self.inputs[:HELD_OUT]).argmax(1)
        return float((guessed == self.targets[:HELD_OUT]).float().mean())


class CharacterGpt:
    """Two layers of width 96, and AdamW."""

    quality = "held-out loss"
    steps, batch = 400, 8

    def __init__(self, seed: int) -> None:
        training, held_out = char_gpt.data(64, 800_000)
        self.windows, self.held_out = training.tensors[0], held_out.tensors[0]
        self.model = char_gpt.CharacterGpt(64, 96, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def loss(self) -> Tensor:
        """Of one rank's next batch."""
        return char_gpt.loss_of(self.model, self.windows[torch.randint(len(self.windows), (self.batch,))])

    def evaluate(self) -> float:
        return float(char_gpt.loss_of(self.model, self.held_out))


WORKLOADS = {"digits": Digits, "gpt": CharacterGpt}


@dataclass(frozen=True)
class Trained:
    quality: float
    loss: float
    """Of the last steps' batches."""
    missing: float
    """Share of the tensors of which rank 0 sent nothing, mean over the steps."""
    achieved: float
    """Share of the elements that rank 0 sent, over the density that was asked for."""


class Rank:
    """One rank's residual, and what selects out of it."""

    def __init__(self, bounds: list[int], selector: Selector | None, density: float, ahead: bool) -> None:
        self.bounds, self.selector = bounds, selector
        self.segments = bounds if ahead else [0, bounds[-1]]
        self.k = [elements_to_send(density, end - begin) for begin, end in pairwise(self.segments)]
        self.residual = torch.zeros(bounds[-1])
        self.missing, self.num_sent = list[float](), list[int]()

    def send(self, gradient: Tensor) -> Tensor:
        """What all of the gradient and the residual is sent, zero elsewhere."""
        if self.selector is None:
            return gradient
        left = torch.empty_like(self.residual)
        selected = self.selector.compress(gradient, self.residual, left, self.segments, self.k)
        self.residual = left
        self.selector.commit([Sent(0, len(left), selected.indices)])
        sent = torch.zeros_like(left).index_copy_(0, selected.indices.long(), selected.values)
        is_sent = torch.zeros_like(left, dtype=torch.bool).index_fill_(0, selected.indices.long(), True)
        self.missing.append(mean(float(not is_sent[begin:end].any()) for begin, end in pairwise(self.bounds)))
        self.num_sent.append(selected.indices.numel())
        return sent


def train(workload_name: str, seed: int, density: float, sparsifier: str, ahead: bool) -> Trained:
    torch.manual_seed(seed)
    workload = WORKLOADS[workload_name](seed)
    parameters = list(reversed(list(workload.model.parameters())))
    bounds = [0]
    for parameter in parameters:
        bounds.append(bounds[-1] + parameter.numel())
    is_dense = density == 1
    ranks = [Rank(bounds, None if is_dense else sparsifiers.create(sparsifier), density, ahead) for _ in range(RANKS)]
    losses = []
    for _ in range(workload.steps):
        update, total = torch.zeros(bounds[-1]), 0.0
        for rank in ranks:
            loss = workload.loss()
            gradients = torch.autograd.grad(loss, parameters)
            update += rank.send(torch.cat([gradient.flatten() for gradient in gradients])) / RANKS
            total += loss.item()
        losses.append(total / RANKS)
        for parameter, (begin, end) in zip(parameters, pairwise(bounds), strict=True):
            parameter.grad = update[begin:end].view_as(parameter)
        workload.optimizer.step()
    with torch.no_grad():
        quality = workload.evaluate()
    if is_dense:
        return Trained(quality, mean(losses[-LAST:]), 0.0, 1.0)
    achieved = mean(ranks[0].num_sent) / bounds[-1] / density
    return Trained(quality, mean(losses[-LAST:]), mean(ranks[0].missing), achieved)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--densities", type=float, nargs="+", default=[1.0, 0.1, 0.01, 0.001])
    parser.add_argument("--sparsifiers", nargs="+", default=["topk"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    quality = WORKLOADS[arguments.workload].quality
    print(f"| density | sparsifier | selection | {quality} | by seed | loss, last {LAST} steps |", end="")
    print(" missing | sent, over k |\n" + "|---" * 8 + "|")
    for density, sparsifier, ahead in product(arguments.densities, arguments.sparsifiers, (True, False)):
        if density == 1 and not ahead:
            continue
        runs = [train(arguments.workload, seed, density, sparsifier, ahead) for seed in arguments.seeds]
        names = ("", "dense") if density == 1 else (sparsifier, "ahead" if ahead else "behind")
        figures = (
            f"{mean(run.quality for run in runs):.3f}",
            ", ".join(f"{run.quality:.3f}" for run in runs),
            f"{mean(run.loss for run in runs):.3f}",
            f"{mean(run.missing for run in runs):.0%}",
            f"{mean(run.achieved for run in runs):.2f}",
        )
        print("| " + " | ".join((f"{density:g}", *names, *figures)) + " |", flush=True)


if __name__ == "__main__":
    main()
