"""Ranks on a GPU train the same, bit for bit, whichever stream is ahead, and what the CPU trains but for rounding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRAINING = Path(__file__).with_name("training_on_gpu.py")
SIZE, DENSE = 2, "dense"
PLANS = (
    DENSE,
    "dense/fusion=equal:buffers=4",
    "dense/fusion=equal:buffers=4/wire=bfloat16",
    "0.01/all-gather/fusion=equal:buffers=4",
    "0.01/all-gather/sparsifier=topk/fusion=equal:buffers=4",
    "0.01/all-gather/sparsifier=dgc/fusion=none/wire=int4",
    "0.01/artopk-star-ring/fusion=equal:buffers=4",
    "0.01/artopk-var-tree/fusion=single",
    "0.01/spardl/sparsifier=topk/fusion=equal:buffers=4",
    "0.01/exdyna/fusion=single",
    "0.01/ok-topk/fusion=equal:buffers=4",
    "0.01/all-gather/fusion=equal:buffers=4/schedule=priority",
    "0.01/all-gather/fusion=equal:buffers=4/schedule=us-byte",
    "0.01/all-gather/fusion=equal:buffers=4/schedule=after-backward",
    "dense/source=update:steps=3",
    "0.02/all-gather/fusion=equal:buffers=4/schedule=overlap/source=update:steps=2",
)


def trained(folder: Path, timing: str, device: str, *plans: str) -> list[list[dict[str, Any]]]:
    """What each rank says of each plan."""
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"} if timing == "blocking" else {}
    path = os.pathsep.join([str(TRAINING.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **blocking, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
    arguments = [str(SIZE), str(folder / f"{timing}-{device}"), timing, device, *plans]
    ranks = [
        subprocess.Popen(
            [sys.executable, TRAINING, str(rank), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(SIZE)
    ]
    try:
        said = [rank.communicate(timeout=240) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, errors) in zip(ranks, said, strict=True):
        assert rank.returncode == 0, errors[-3000:]
    return [[json.loads(line) for line in lines.splitlines()] for lines, _ in said]


@pytest.mark.cuda
def test_streams_wait_for_what_they_need_of_each_other(tmp_path: Path) -> None:
    """Each launch waits for the one before in one run, in another streams fall behind at random: the same bits."""
    blocking, plain, shaken = (trained(tmp_path, timing, "cuda", *PLANS) for timing in ("blocking", "plain", "shaken"))
    for rank in range(SIZE):
        for one, other, third in zip(blocking[rank], plain[rank], shaken[rank], strict=True):
            assert one["digest"] == other["digest"] == third["digest"], one["plan"]


@pytest.mark.cuda
def test_a_gpu_trains_what_the_cpu_does(tmp_path: Path) -> None:
    for on_gpu, on_cpu in zip(*(trained(tmp_path, "plain", each, DENSE) for each in ("cuda", "cpu")), strict=True):
        assert on_gpu[0]["losses"] == pytest.approx(on_cpu[0]["losses"], rel=1e-3)
