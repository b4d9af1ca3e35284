"""What collectives do to training, and what density ExDyna keeps; ranks are threads of one process.

    python benchmarks training/schemes convergence --ranks 4 6 --seeds 1 2 3
    python benchmarks training/schemes convergence --workload gpt --steps 300 --keep gpt.jsonl
    python benchmarks training/schemes density --hidden 512

*convergence* trains under each plan and prints held-out accuracy and loss, gain, what a rank sends and how long an
update takes. On the character GPT, whose source is the update, it prints the step at which each plan reaches the loss
that dense has in the end, beside those of exact top-k of the ranks' sum that applies as many values; trainings that
``--keep`` has on file are not run again, so that a table may come of several runs. *density* prints
of each variant of ExDyna how often what is sent is within 10% of k and f(t) at most 1.2, from step 100 on; then
density, f(t), density error (6), threshold and global error (1) along the way, the last scaled as in Fig. 10.

Needs nothing more; takes some minutes a plan and seed of the digits, an hour of the GPT.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from results import record
from simulated_training import WORKLOADS, Ranks, train
from trimtab.plan.plan import Plan, elements_to_send
from trimtab_api.catalogue import SPARSE_COLLECTIVES

VARIANTS = ("", ":partition=coarse", ":threshold=scaled", ":partition=coarse:threshold=scaled", ":threshold=paper")
SETTLED = 100
OF_GPT = ("all-gather", "artopk-star-ring", "spardl", "ok-topk", "gtopk", "exdyna")
#: Held-out loss is looked at so often [steps], and averaged over so many looks.
LOOK_EVERY, AVERAGED_LOOKS = 10, 3


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    convergence = commands.add_parser("convergence")
    convergence.add_argument("plans", nargs="*", help="by default dense, and every collective at 0.01")
    convergence.add_argument("--workload", choices=WORKLOADS, default="digits")
    convergence.add_argument("--ranks", type=int, nargs="+", default=[4])
    convergence.add_argument("--per-host", type=int, default=1, help="ranks that share a host, for plans of per_host")
    convergence.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    convergence.add_argument("--steps", type=int, default=600)
    convergence.add_argument("--keep", type=Path, help="of the GPT: a file of trainings that are done, and are added")
    convergence.add_argument("--hidden", type=int, default=128, help="of the digits' perceptron")
    convergence.set_defaults(run=print_convergence)
    density = commands.add_parser("density")
    density.add_argument("--ranks", type=int, default=4)
    density.add_argument("--hidden", type=int, default=512, help="512 makes 0.3 million parameters")
    density.add_argument("--steps", type=int, default=300)
    density.add_argument("--ratio", type=float, default=0.01)
    density.add_argument("--seed", type=int, default=1)
    density.set_defaults(run=print_density)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.run(arguments)


def print_convergence(arguments: argparse.Namespace) -> None:
    """A row for each number of ranks and plan."""
    if arguments.workload == "gpt":
        print_steps_of_gpt(arguments)
        return
    plans = arguments.plans or ["dense", *(f"0.01/{name}" for name in SPARSE_COLLECTIVES)]
    print("| ranks | plan | accuracy by seed, % | mean | loss | gain | kB a step | ms an update |\n|" + "---|" * 8)
    beside_dense = []
    for num_ranks in arguments.ranks:
        hosts = hosts_of(num_ranks, arguments.per_host)
        means: dict[str, float] = {}
        for text in plans:
            accuracies, losses, gains, sent, seconds = [], [], [], [], []
            for seed in arguments.seeds:
                workload = WORKLOADS[arguments.workload](seed, arguments.hidden)
                for t, step in enumerate(train(workload, Plan.parse(text), num_ranks, arguments.steps, seed, hosts)):
                    last = step
                    if t >= arguments.steps // 2:
                        gains.append(step.gain)
                        sent.append(mean(each.num_bytes for each in step.exchanged))
                        seconds.append(step.exchange_seconds)
                accuracy, loss = workload.evaluate(last.model)
                accuracies.append(100 * accuracy)
                losses.append(loss)
            means[text] = mean(accuracies)
            print(
                f"| {num_ranks} | `{text}` | {', '.join(f'{each:.1f}' for each in accuracies)} | {mean(accuracies):.1f}"
                f" | {mean(losses):.3f} | {mean(gains):.3f} | {mean(sent) / 1e3:.1f} |"
                f" {1e3 * statistics.median(seconds):.1f} |",
                flush=True,
            )
        if "dense" in means:
            beside_dense += [means[text] - means["dense"] for text in means if text != "dense"]
    if beside_dense:
        record("scheme-accuracy", min(beside_dense))


@dataclass(frozen=True)
class Trained:
    """One training of the GPT."""

    looks: list[float]
    """Held-out losses, each averaged over the last `AVERAGED_LOOKS`."""
    num_applied: int
    """Values that are not zero in a mean update."""
    update_seconds: float

    @property
    def num_steps(self) -> int:
        """Taken, until the loss was small enough."""
        return LOOK_EVERY * len(self.looks)


def train_gpt(
    arguments: argparse.Namespace, num_ranks: int, seed: int, plan: Plan | int, num_steps: int, enough: float = 0.0
) -> Trained:
    """Until the held-out loss is ``enough``, or ``num_steps`` are over."""
    key = [num_ranks, arguments.per_host, seed, arguments.steps, plan if isinstance(plan, int) else plan.name]
    for kept in kept_trainings(arguments.keep):
        if kept["key"] == key:
            return Trained(**kept["trained"])
    workload = WORKLOADS["gpt"](seed, arguments.hidden)
    losses, looks, applied, seconds = [], [], [], []
    hosts = hosts_of(num_ranks, arguments.per_host)
    for t, step in enumerate(train(workload, plan, num_ranks, num_steps, seed, hosts), start=1):
        applied.append(step.num_applied)
        seconds.append(step.exchange_seconds)
        if t % LOOK_EVERY == 0:
            losses.append(workload.evaluate(step.model)[1])
            looks.append(mean(losses[-AVERAGED_LOOKS:]))
            if looks[-1] <= enough:
                break
    trained = Trained(looks, max(1, round(mean(applied))), statistics.median(seconds))
    if arguments.keep is not None:
        with arguments.keep.open("a") as file:
            file.write(json.dumps({"key": key, "trained": asdict(trained)}) + "\n")
    return trained


def kept_trainings(file: Path | None) -> list[dict[str, Any]]:
    """Of ``--keep``: the key of each, and its `Trained`."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file is not None and file.exists() else []


def print_steps_of_gpt(arguments: argparse.Namespace) -> None:
    """Of each plan the steps to dense's last loss, and those of exact top-k that applies as many values."""
    plans = arguments.plans or [f"0.01/{name}/source=update:steps=1" for name in OF_GPT]
    print("| ranks | seed | plan | values applied | steps | of exact top-k | ratio | ms an update |\n|" + "---|" * 8)
    for num_ranks, seed in product(arguments.ranks, arguments.seeds):
        dense = train_gpt(arguments, num_ranks, seed, Plan.parse("dense/source=update:steps=1"), arguments.steps)
        target, most = dense.looks[-1], 6 * arguments.steps
        world = [num_ranks, arguments.per_host, seed, arguments.steps]
        exact = [kept["key"][-1] for kept in kept_trainings(arguments.keep) if kept["key"][:-1] == world]
        exact = [k for k in exact if isinstance(k, int)]
        for text in plans:
            trained = train_gpt(arguments, num_ranks, seed, Plan.parse(text), most, target)
            k = trained.num_applied
            near = next((known for known in exact if abs(known / k - 1) < 0.05), k)
            exact.append(near)
            exact_steps = train_gpt(arguments, num_ranks, seed, near, most, target).num_steps
            print(
                f"| {num_ranks} | {seed} | `{text}` | {k} | {trained.num_steps} | {exact_steps} |"
                f" {trained.num_steps / exact_steps:.2f} | {1e3 * trained.update_seconds:.1f} |",
                flush=True,
            )


def hosts_of(num_ranks: int, per_host: int) -> tuple[tuple[int, ...], ...]:
    """Ranks counted host by host."""
    return tuple(tuple(range(first, first + per_host)) for first in range(0, num_ranks, per_host))


def print_density(arguments: argparse.Namespace) -> None:
    """What each variant of ExDyna sends, in all and step by step."""
    summary, traces = [], []
    for variant in VARIANTS:
        plan = Plan.parse(f"{arguments.ratio:g}/exdyna{variant}")
        sent, imbalances, thresholds, errors, gains = [], [], [], [], []
        workload = WORKLOADS["digits"](arguments.seed, arguments.hidden)
        for step in train(workload, plan, arguments.ranks, arguments.steps, arguments.seed):
            assert isinstance(step.ranks, Ranks)
            n = step.ranks.residuals[0].numel()
            figures = step.exchanged[0].figures
            sent.append(figures["density"])
            imbalances.append(figures["imbalance"])
            thresholds.append(figures["threshold"])
            errors.append(mean(float(residual.norm()) for residual in step.ranks.residuals))
            gains.append(step.gain)
        ratio = elements_to_send(arguments.ratio, n) / n
        late = range(SETTLED, arguments.steps)
        summary.append(
            f"| {plan.name} | {share(abs(sent[t] / ratio - 1) <= 0.1 for t in late)} |"
            f" {share(imbalances[t] <= 1.2 for t in late)} |"
            f" {mean(imbalances[t] for t in late):.2f}, {max(imbalances[t] for t in late):.2f} |"
            f" {mean(abs(sent[t] - ratio) for t in late):.1e} |"
            f" {mean(gains[t] for t in late):.3f} |"
        )
        if not variant:
            record("exdyna-density", 100 * mean(float(abs(sent[t] / ratio - 1) <= 0.1) for t in late))
            record("exdyna-imbalance", max(imbalances[t] for t in late))
        scale = sum(thresholds) / sum(errors)
        traces += [
            f"| {plan.name} | {t} | {sent[t] / ratio:.2f} | {imbalances[t]:.2f} | {abs(sent[t] - ratio):.1e} |"
            f" {thresholds[t]:.2e} | {scale * errors[t]:.2e} |"
            for t in sorted({0, 10, *range(50, arguments.steps, 50), arguments.steps - 1})
        ]
    print(f"n = {n}, k = {round(ratio * n)}, {arguments.ranks} ranks, seed {arguments.seed}\n")
    print("| plan | within 10% of k | f(t) at most 1.2 | f(t): mean, most | mean density error | gain |")
    print("|---|---|---|---|---|---|", *summary, "", sep="\n")
    print("| plan | step | sent / k | f(t) | density error | threshold | global error, scaled |")
    print("|---|---|---|---|---|---|---|", *traces, sep="\n")


def share(holds) -> str:
    """Of how many steps something holds."""
    return f"{100 * mean(map(float, holds)):.0f}%"


if __name__ == "__main__":
    main()
