"""The sparsifiers: which elements of a gradient are sent."""

from __future__ import annotations

from trimtab_api.catalogue.options import Option, one_of, positive, whole_number
from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.rows import Sparsifier

# What selecting takes beside a tracked threshold, and the gain of a random draw: table
# `sparsifiers` of benchmarks/results.
sparsifiers: Registry[Sparsifier] = Registry(
    "sparsifier",
    Sparsifier(
        "tracked",
        "a threshold carried from step to step, corrected by what it achieved: within 10% of k",
        "trimtab.sparsifiers.tracked_threshold:TrackedThreshold",
    ),
    Sparsifier("topk", "exactly the k largest", "trimtab.sparsifiers.topk:TopK", passes=9.0),
    Sparsifier(
        "mstopk",
        "exactly k, by a threshold found by bisection (MSTopk)",
        "trimtab.sparsifiers.mstopk:MSTopK",
        passes=35.0,
    ),
    Sparsifier("dgc", "0.8 to 1.3 k, by the threshold of a sample (DGC)", "trimtab.sparsifiers.dgc:DGC", passes=1.6),
    Sparsifier(
        "sidco",
        "k / 2 to 2 k, by a distribution fitted in stages (SIDCo)",
        "trimtab.sparsifiers.sidco:SIDCo",
        options=(
            Option("fit", one_of("exponential", "pareto"), "the distribution of the magnitudes", default="exponential"),
        ),
        passes=1.6,
    ),
    Sparsifier(
        "gaussian-k",
        "2/3 to 4/3 k, by the percent point of a normal distribution (Gaussian-k)",
        "trimtab.sparsifiers.gaussian_k:GaussianK",
        passes=4.5,
    ),
    Sparsifier(
        "redsync",
        "k / 2 to 2 k, by bisection between mean and maximum (RedSync)",
        "trimtab.sparsifiers.redsync:RedSync",
        passes=4.0,
    ),
    Sparsifier(
        "hard-threshold",
        "what reaches a constant, k / 4 to 4 k of it",
        "trimtab.sparsifiers.hard_threshold:HardThreshold",
        options=(Option("threshold", positive, "lambda, the smallest magnitude that is sent", default=0.01),),
        passes=5.0,
    ),
    Sparsifier(
        "random-k",
        "any k elements, the same on every rank",
        "trimtab.sparsifiers.random_k:RandomK",
        options=(Option("seed", whole_number(0), "of the draw", default=0),),
        passes=2.0,
        gain_odds=0.05,
    ),
)
