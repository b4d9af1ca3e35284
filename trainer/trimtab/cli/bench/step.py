"""``trimtab bench step``: whole training steps of ResNet-18 on an emulated network, against DDP's own methods."""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from typing import Any

from trimtab_api.cli import whole_number
from trimtab_api.errors import UserError
from trimtab_api.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration
from trimtab_netmon.emulate import Network, Phase
from trimtab_netmon.emulate.emulator import MAX_HOSTS

from trimtab.plan.names import ADAPTIVE, DDP_HOOKS, GRID_MEANS, parse_plans

NETWORKS = (("0.5ms", "1Gbps"), ("5ms", "1Gbps"), ("2ms", "200Mbps"))
PLANS = (
    "0.01/all-gather/fusion=single",
    "0.01/all-gather/fusion=equal:buffers=5",
    "0.1/all-gather/fusion=single",
    "0.1/all-gather/fusion=equal:buffers=5",
    "0.01/artopk-star-ring/fusion=single",
    "0.01/artopk-star-tree/fusion=single",
)
BASELINES = ("compute", "ddp", *DDP_HOOKS)
TIMEOUT_SECONDS = 900.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--workers", type=whole_number("--workers", 2, MAX_HOSTS), default=4, help="hosts that train (4)"
    )
    parser.add_argument(
        "--steps",
        type=whole_number("--steps", 1, 1000),
        default=9,
        help="steps measured under each method (9), of local steps whole rounds",
    )
    parser.add_argument(
        "--plans",
        type=_static_plans,
        default=",".join(PLANS),
        help=f"plans, by commas; grid for {GRID_MEANS}",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="let every layer sleep for as long as it takes alone, as where ranks do not share cores",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _static_plans(text: str) -> str:
    names = parse_plans(text, "--plans")
    if ADAPTIVE in names:
        raise UserError("chooses while it trains; name plans to measure", field="--plans", value=ADAPTIVE)
    if hooks := [name for name in names if name in DDP_HOOKS]:
        raise UserError("is measured in any case; leave it out", field="--plans", value=hooks[0])
    return ",".join(names)


def run(args: argparse.Namespace) -> int:
    """Measure and print; one object a network."""
    from trimtab.evaluation.bench.fleet import run_on_hosts

    if find_spec("torchvision") is None:
        raise UserError("times torchvision's ResNet-18; pip install 'trimtab[bench]'", field="trimtab bench step")
    results = []
    for latency, bandwidth in NETWORKS:
        network = Network(
            phases=(Phase(duration=3600.0, latency=parse_duration(latency), bandwidth=parse_bandwidth(bandwidth)),)
        )
        seconds = run_on_hosts(
            network,
            args.workers,
            "trimtab.evaluation.bench.step_worker",
            ["--methods", ",".join([*BASELINES, args.plans]), "--steps", str(args.steps), *["--replay"] * args.replay],
            TIMEOUT_SECONDS,
        )
        results.append(_result(parse_duration(latency), parse_bandwidth(bandwidth), seconds))
        if not args.json:
            _print(results[-1])
    if args.json:
        print(json.dumps(results, indent=2))
    return 0


def _result(latency: float, bandwidth: float, seconds: dict[str, float]) -> dict[str, Any]:
    return {
        "latency": latency,
        "bandwidth": bandwidth,
        "step_seconds": seconds,
        "exposed_share": {
            method: (value - seconds["compute"]) / (seconds["ddp"] - seconds["compute"])
            for method, value in seconds.items()
        },
        "speedup_over_dense": {method: seconds["ddp"] / value for method, value in seconds.items()},
    }


def _print(result: dict[str, Any]) -> None:
    print(f"latency {format_duration(result['latency'])}, bandwidth {format_bandwidth(result['bandwidth'])}")
    for method, seconds in result["step_seconds"].items():
        print(
            f"  {method:42} {seconds * 1000:8.0f} ms {result['speedup_over_dense'][method]:6.2f}x"
            f" {result['exposed_share'][method]:7.1%} exposed"
        )
