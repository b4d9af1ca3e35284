"""What density ExDyna keeps on gradients of real training: digits, its ranks simulated in one process.

    .venv/bin/python tests/collectives/measure_exdyna.py --hidden 128 --steps 300

Prints of each variant how often what is sent is within 10% of k and f(t) at most 1.2, from step 100 on; then density,
f(t), density error (6), threshold and global error (1) along the way, the last scaled as in the paper's Fig. 10.
The figures are kept in docs/measurements/exdyna.md.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from measure_schemes import Training
from trimtab.plan import Plan, elements_to_send

VARIANTS = ("", ":partition=coarse", ":threshold=scaled", ":partition=coarse:threshold=scaled", ":threshold=paper")
SETTLED = 100


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128, help="128 makes 0.54 million parameters")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ratio", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(arguments.ranks, arguments.hidden, arguments.steps)
    summary, traces = [], []
    for variant in VARIANTS:
        plan = Plan.parse(f"{arguments.ratio:g}/exdyna{variant}")
        sent, imbalances, thresholds, errors, gains = [], [], [], [], []
        for ranks, exchanged, _ in training.run(plan, arguments.seed):
            n = ranks.residuals[0].numel()
            figures = exchanged[0].figures
            sent.append(figures["density"])
            imbalances.append(figures["imbalance"])
            thresholds.append(figures["threshold"])
            errors.append(statistics.mean(float(residual.norm()) for residual in ranks.residuals))
            after = sum(each.squared_norm_after for each in exchanged)
            gains.append(1 - after / sum(each.squared_norm_before for each in exchanged))
        ratio = elements_to_send(arguments.ratio, n) / n
        late = range(SETTLED, arguments.steps)
        summary.append(
            f"| {plan.name} | {share(abs(sent[t] / ratio - 1) <= 0.1 for t in late)} |"
            f" {share(imbalances[t] <= 1.2 for t in late)} |"
            f" {statistics.mean(imbalances[t] for t in late):.2f}, {max(imbalances[t] for t in late):.2f} |"
            f" {statistics.mean(abs(sent[t] - ratio) for t in late):.1e} |"
            f" {statistics.mean(gains[t] for t in late):.3f} |"
        )
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
    return f"{100 * statistics.mean(map(float, holds)):.0f}%"


if __name__ == "__main__":
    main()
