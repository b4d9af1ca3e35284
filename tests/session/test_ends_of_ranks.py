"""Where one rank ends, and others go on, their error names that rank, why it ended, and how far each had come."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
from kit.rank_pool import RankPool
from torch import nn
from trimtab.launch.environment.ports import free_ports
from trimtab.launch.processes.children import Exit
from trimtab.launch.processes.root_cause import root_cause
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.checks import check_model_of_many_ranks
from trimtab.session.session import Session
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab_api.errors import UserError


def open_session(plan: str) -> tuple[Session, nn.Module]:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return Session(model, optimizer, group=Group.connect(), plan=Plan.parse(plan), recorder=Recorder(None)), model


def train(session: Session, model: nn.Module, num_steps: int) -> None:
    for _ in range(num_steps):
        model(torch.ones(2, 4)).square().mean().backward()
        session.step()


def uneven(rank: int, size: int) -> str:
    session, model = open_session("dense")
    try:
        train(session, model, 5 + rank)
    except CommunicationError as error:
        return "".join(traceback.format_exception_only(error))
    finally:
        session.close()
    return ""


@pytest.mark.pattern(
    "ranks of unlike numbers of batches; a rank that ends early",
    refused="the error names the rank and steps",
)
def test_a_rank_that_ends_early_is_named_with_its_steps(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, uneven)
    assert first == ""
    assert "rank 0: has closed its session, and takes part in no further step (5 training steps taken)" in second
    assert "this rank: 5 training steps taken" in second


SCRIPT = """
import sys, torch, trimtab
model = torch.nn.Linear(4, 1)
session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.01), plan=sys.argv[2])
for number, x in enumerate(session.batches([torch.ones(2, 4)] * 24)):
    if session.rank == 1 and number == 6:
        if sys.argv[1] == "raise":
            raise ValueError("what happened")
        sys.exit(0)
    model(x).square().mean().backward()
    session.step()
"""


def run_two(how: str, plan: str, folder: Path) -> list[tuple[int, str]]:
    """Exit code and stderr of each rank of the script above."""
    (folder / "script.py").write_text(SCRIPT)
    (port,) = free_ports(1)
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "TRIMTAB_RUN_DIR": str(folder / "run"),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "script.py", how, plan],
            cwd=folder,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=600)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, text) for rank, text in zip(ranks, said, strict=True)]


@pytest.mark.slow
def test_a_script_that_ends_early_with_code_0_is_named_to_the_others(tmp_path: Path) -> None:
    (first_code, first), (second_code, _) = run_two("exit", "dense", tmp_path)
    assert (first_code, second_code) == (1, 0)
    assert "rank 1: has ended its script, and takes part in no further step (6 training steps taken)" in first
    assert "this rank: 6 training steps taken" in first


@pytest.mark.slow
def test_an_exception_within_a_round_of_local_steps_is_the_root_cause(tmp_path: Path) -> None:
    (first_code, first), (second_code, second) = run_two("raise", "dense/source=update:steps=4", tmp_path)
    assert (first_code, second_code) == (1, 1)
    assert second.splitlines()[-1] == "ValueError: what happened"
    lines = {"rank-0": first.splitlines(), "rank-1": second.splitlines()}
    assert root_cause([Exit("rank-0", first_code), Exit("rank-1", second_code)], lines.__getitem__).name == "rank-1"


@pytest.mark.pattern(
    "lazy modules before their first forward pass, on several ranks",
    refused="`run one batch through the model ... before attach`",
)
def test_a_lazy_parameter_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(1))
    with pytest.raises(UserError, match=r"model parameter 1\.weight: 'UninitializedParameter': has no shape"):
        check_model_of_many_ranks(model)
    model(torch.ones(1, 2))
    check_model_of_many_ranks(model)


def local_steps(rank: int, size: int) -> str:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        session, model = open_session("dense/source=update:steps=4")
        train(session, model, 8)
        session.close()
    return said.getvalue()


def test_local_steps_are_told_of_once(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, local_steps)
    assert first.count("local steps: weights differ between ranks until a round ends") == 1
    assert second == ""
