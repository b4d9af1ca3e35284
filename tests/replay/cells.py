"""Runs `replayed_steps` on the hosts of an emulated network."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from trimtab.evaluation.bench.fleet import run_on_hosts
from trimtab_netmon.emulate import Network, Phase

HERE = Path(__file__).resolve().parent


def measure(layers, workers, latency, bandwidth, plans, *, num_known=1, steps=8, trace=False, timeout=450.0):
    """What rank 0 tells of each plan, a name or a pair of that and how many steps; ``bandwidth`` in bits a second."""
    asked = [each if isinstance(each, tuple) else (each, steps) for each in plans]
    task = {
        "layers": layers,
        "alpha": latency,
        "beta": 8 / bandwidth,
        "plans": [{"plan": plan, "steps": steps} for plan, steps in asked],
        "num_known": num_known,
        "trace": trace,
    }
    network = Network((Phase(3600.0, latency, bandwidth / 8),))
    os.environ["PYTHONPATH"] = str(HERE)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(task))
        file.flush()
        return run_on_hosts(network, workers, "replayed_steps", [file.name], timeout)
