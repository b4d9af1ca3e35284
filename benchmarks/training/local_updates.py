"""How many more steps than dense a run needs that exchanges updates of local steps (docs/explanation/local-sgd.md).

    python benchmarks training/local_updates gpt --optimizer adamw --rate 1e-3
    python benchmarks training/local_updates digits --optimizer sgd --rate 0.03 --ratios 1 0.1 --steps-a-round 1 4

Four ranks in one process, each with an optimizer of its own: after H steps what they did to the weights is exchanged,
with exact top-k and error feedback, and all go on from where the outer step takes the anchor (plain averaging unless
said otherwise). A line for each plan: the step at which the held-out loss first fell to each level. Minutes on one
core, and no network.

Needs nothing more; takes two to ten minutes a plan.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from math import sqrt
from statistics import mean

import torch
from char_lm import GPT, Text, cross_entropy, read_library
from sklearn.datasets import load_digits
from staleness import RANKS, exchange
from torch import Tensor, nn
from trimtab.engine.local_sgd.second_moments import SecondMoments

LOOK_EVERY, AVERAGED_LOOKS = 4, 3
LEVELS = {"gpt": (2.7, 2.5, 2.4, 2.28), **dict.fromkeys(("digits", "cnn", "mixer"), (1.0, 0.5, 0.3, 0.2))}
OPTIMIZERS = {
    "adamw": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate),
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
}


class CharacterGpt:
    """The character GPT of examples/char_lm.py, 0.3 million parameters."""

    def __init__(self, seed: int) -> None:
        training, held = read_library(seed, 800_000)
        self._windows, held_out = Text(training, 64), Text(held, 64)
        self._held = _stack(held_out, range(96))

    def model(self) -> nn.Module:
        return GPT(64, 96, 2, 4)

    def loss(self, model: nn.Module, draws: torch.Generator) -> Tensor:
        inputs, targets = _stack(self._windows, torch.randint(len(self._windows), (8,), generator=draws).tolist())
        return cross_entropy(model(inputs), targets)

    def held_out_loss(self, model: nn.Module) -> float:
        inputs, targets = self._held
        return float(cross_entropy(model(inputs), targets))


class Digits:
    """A perceptron of 0.3 million parameters on scikit-learn's digits, a small CNN with batch norm, or an MLP-Mixer."""

    def __init__(self, kind: str) -> None:
        images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
        images = images.float() / 16
        images -= images.mean(0)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self._images, self._labels, self._kind = images, labels, kind
        self._training, self._held = order[360:], order[:360]

    def model(self) -> nn.Module:
        if self._kind == "digits":
            return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        if self._kind == "mixer":
            blocks = [MixerBlock(num_patches=16, width=64) for _ in range(2)]
            return nn.Sequential(Patches(), nn.Linear(4, 64), *blocks, nn.LayerNorm(64), Average(), nn.Linear(64, 10))
        layers: list[nn.Module] = [nn.Unflatten(1, (1, 8, 8))]
        for before, after in ((1, 32), (32, 64)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))

    def loss(self, model: nn.Module, draws: torch.Generator) -> Tensor:
        batch = self._training[torch.randint(len(self._training), (16,), generator=draws)]
        return nn.functional.cross_entropy(model(self._images[batch]), self._labels[batch])

    def held_out_loss(self, model: nn.Module) -> float:
        return float(nn.functional.cross_entropy(model(self._images[self._held]), self._labels[self._held]))


class Patches(nn.Module):
    """[batch, 64], images of 8 by 8, to [batch, 16, 4]: patches of 2 by 2."""

    def forward(self, images: Tensor) -> Tensor:
        return images.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)


class MixerBlock(nn.Module):
    """Mixes patches, then channels (MLP-Mixer, arXiv 2105.01601, section 2), each with a residual."""

    def __init__(self, num_patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        sizes = ((num_patches, 2 * num_patches), (width, 4 * width))
        self.mix_patches, self.mix_channels = (
            nn.Sequential(nn.Linear(outer, inner), nn.GELU(), nn.Linear(inner, outer)) for outer, inner in sizes
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix_patches(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.mix_channels(self.norms[1](x))


class Average(nn.Module):
    """[batch, patches, width] to its mean over patches."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


def _stack(text: Text, indices: list[int] | range) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*(text[index] for index in indices), strict=True)
    return torch.stack(inputs), torch.stack(targets)


def _models(workload: CharacterGpt | Digits, seed: int) -> list[nn.Module]:
    """Of each rank, all with the same weights."""
    torch.manual_seed(seed)
    models = [workload.model() for _ in range(RANKS)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    return models


def dense(workload: CharacterGpt | Digits, wanted: argparse.Namespace, seed: int) -> Iterator[nn.Module]:
    """Rank 0's model after each step on the mean gradient of all ranks, whose buffers see their own batches alone."""
    draws, models = torch.Generator().manual_seed(seed), _models(workload, seed)
    optimizer = OPTIMIZERS[wanted.optimizer](models[0].parameters(), wanted.rate)
    while True:
        optimizer.zero_grad()
        for model in models:
            grads = torch.autograd.grad(workload.loss(model, draws) / RANKS, list(model.parameters()))
            for parameter, grad in zip(models[0].parameters(), grads, strict=True):
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
        optimizer.step()
        for model in models[1:]:
            for parameter, same in zip(model.parameters(), models[0].parameters(), strict=True):
                parameter.data.copy_(same)
        yield models[0]


def of_updates(
    workload: CharacterGpt | Digits,
    wanted: argparse.Namespace,
    seed: int,
    ratio: float,
    num_local: int,
    relative_norms: list[float],
) -> Iterator[nn.Module]:
    """Rank 0's model after each step; after every ``num_local`` of them all ranks' weights are alike.

    ``relative_norms`` gets the residual's norm over that of what was sent, of each exchange.
    """
    draws, models = torch.Generator().manual_seed(seed), _models(workload, seed)
    optimizers = [OPTIMIZERS[wanted.optimizer](model.parameters(), wanted.rate) for model in models]
    if not wanted.own_moments:
        SecondMoments(optimizers, RANKS, lambda: True)
    anchor = nn.utils.parameters_to_vector(models[0].parameters()).detach().clone()
    residual, velocity = torch.zeros(RANKS, len(anchor)), torch.zeros_like(anchor)
    num_taken = 0
    while True:
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            workload.loss(model, draws).backward()
            optimizer.step()
        num_taken += 1
        if num_taken % num_local == 0:
            made = torch.stack([anchor - nn.utils.parameters_to_vector(m.parameters()).detach() for m in models])
            update, residual, gain = exchange(made + wanted.residual_decay * residual, ratio, None)
            relative_norms.append(sqrt(1 / gain - 1))
            velocity = wanted.outer_momentum * velocity + update
            anchor = anchor - wanted.outer_rate * (update + wanted.outer_momentum * velocity)
            buffers = [[b for b in model.buffers() if b.is_floating_point()] for model in models]
            for same in zip(*buffers, strict=True):
                average = torch.stack(same).mean(0)
                for each in same:
                    each.copy_(average)
            for model in models:
                nn.utils.vector_to_parameters(anchor.clone(), model.parameters())
            if wanted.average_moments and num_taken % (wanted.average_moments * num_local) == 0:
                average_second_moments(models, optimizers)
        yield models[0]


def average_second_moments(models: list[nn.Module], optimizers: list[torch.optim.Optimizer]) -> None:
    """Give every rank's Adam the mean over ranks of what each keeps of squares."""
    for same in zip(*(model.parameters() for model in models), strict=True):
        squares = [optimizer.state[each]["exp_avg_sq"] for optimizer, each in zip(optimizers, same, strict=True)]
        average = torch.stack(squares).mean(0)
        for each in squares:
            each.copy_(average)


def steps_to(
    workload: CharacterGpt | Digits, models: Iterator[nn.Module], levels: tuple[float, ...], most: int, look_every: int
) -> list[int]:
    """The step at which the held-out loss, averaged over a few looks, first fell to each level."""
    reached: list[int] = []
    losses: list[float] = []
    for step, model in zip(range(1, most + 1), models, strict=False):
        if step % look_every:
            continue
        model.eval()
        with torch.no_grad():
            losses.append(workload.held_out_loss(model))
        model.train()
        loss = mean(losses[-AVERAGED_LOOKS:])
        while len(reached) < len(levels) and loss <= levels[len(reached)]:
            reached.append(step)
        if len(reached) == len(levels):
            break
    return reached


def main() -> None:
    """Dense's steps, then a line for each plan: its steps, and how many times dense's they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=LEVELS)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--ratios", type=float, nargs="*", default=[1, 0.1, 0.01, 0.001])
    parser.add_argument("--steps-a-round", type=int, nargs="*", default=[1, 4, 16], help="H")
    parser.add_argument("--own-moments", action="store_true", help="leave Adam what each rank's own gradients make")
    parser.add_argument(
        "--average-moments", type=int, default=0, metavar="ROUNDS", help="average second moments over ranks so often"
    )
    parser.add_argument("--outer-rate", type=float, default=1.0, help="of the anchor's step by the mean update")
    parser.add_argument("--outer-momentum", type=float, default=0.0, help="Nesterov's, of that step")
    parser.add_argument("--residual-decay", type=float, default=1.0, help="what is left of it when it is used")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1500, help="the most that a run may take")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    workload = CharacterGpt(wanted.seed) if wanted.workload == "gpt" else Digits(wanted.workload)
    levels = LEVELS[wanted.workload]
    for num_local in wanted.steps_a_round:
        # Within a round rank 0's own weights say nothing of the job's; dense is looked at as often.
        look_every = max(LOOK_EVERY, num_local)
        fewest = steps_to(workload, dense(workload, wanted, wanted.seed), levels, wanted.steps, look_every)
        trained = f"{wanted.workload}, {wanted.optimizer} {wanted.rate:g}"
        print(f"{trained}: dense needs {fewest} steps to {levels}, looked at every {look_every}", flush=True)
        for ratio in wanted.ratios:
            began = time.monotonic()
            norms: list[float] = []
            models = of_updates(workload, wanted, wanted.seed, ratio, num_local, norms)
            steps = steps_to(workload, models, levels, wanted.steps, look_every)
            times = ", ".join(f"{mine / dense:.2f}" for mine, dense in zip(steps, fewest, strict=False))
            x = f", x {mean(norms):.1f}" if norms else ""
            print(f"H {num_local}, {ratio:g}: {steps}, {times} times{x}; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
