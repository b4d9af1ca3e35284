"""What a run tells of its profiled steps, moment by moment, and the trace that is made of it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training import toy_schedules
from torch import nn
from trimtab.cli.main import main
from trimtab.engine.profiling.profiler import NUM_SETTLING, NUM_STEPS
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

#: The last layer, whose gradients come first; and the others.
AHEAD, BEHIND = (FusionPlan((0, 17), selection) for selection in ("ahead", "behind"))
NUM_UNTIL_PROFILED = NUM_SETTLING + NUM_STEPS
ALL_STEPS = NUM_UNTIL_PROFILED + 2


def train(
    rank: int, size: int, fusion: FusionPlan, folder: str, schedule: str = "wait-free", num_steps: int = ALL_STEPS
) -> None:
    toy_schedules.register()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    with torch.no_grad():
        model[0].bias.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(Path(folder) if rank == 0 else None)
    plan = Plan(0.01, "all-gather", "topk", fusion, schedule)
    session = Session(model, optimizer, group=Group.connect(), plan=plan, recorder=recorder)
    for number in range(num_steps):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(10 * number + rank))
        loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        loss.backward()
        session.step(loss)
    session.close()


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def run(rank_pool: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run whose selection is ahead of fusion."""
    folder = tmp_path_factory.mktemp("ahead")
    rank_pool.run_in_process_group(2, train, AHEAD, str(folder))
    return folder


def test_selection_ahead_of_fusion_misses_no_tensor_and_behind_it_some(
    run: Path, rank_pool: RankPool, tmp_path: Path
) -> None:
    assert {line["missing_rate"] for line in lines(run / "metrics.jsonl")} == {0.0}
    rank_pool.run_in_process_group(2, train, BEHIND, str(tmp_path))
    rates = [line["missing_rate"] for line in lines(tmp_path / "metrics.jsonl")]
    assert all(0 < rate < 1 for rate in rates)


def test_each_profiled_step_tells_its_passes_and_the_way_of_each_buffer(run: Path) -> None:
    traced = lines(run / "trace.jsonl")
    assert [line["step"] for line in traced] == list(range(NUM_SETTLING, NUM_UNTIL_PROFILED))
    for line in traced:
        rows = defaultdict(list)
        for span in line["spans"]:
            assert 0 <= span["begin"] <= span["end"], span
            rows[span["row"]].append((span["phase"], span["name"], span["begin"], span["end"]))
        assert [(phase, name) for phase, name, *_ in rows["computing"]] == [
            *(("FORWARD", name) for name in "024"),
            *(("BACKWARD", f"{layer}.{of}") for layer in "420" for of in ("bias", "weight")),
        ]
        for buffer in ("buffer 0", "buffer 1"):
            phases, _, begins, ends = zip(*rows[buffer], strict=True)
            assert phases == ("WAIT_FOR_OTHER_TENSOR_DATA", "QUEUE", "COMPRESS", "QUEUE", "ALLGATHER")
            assert begins[1:] == ends[:-1]
        [(_, _, step_begins, step_ends)] = rows["step"]
        compressed, crossed = rows["compressing"], rows["link 0"]
        assert len(compressed) == len(crossed) == 2
        assert step_begins <= compressed[0][2]
        assert crossed[-1][3] <= step_ends
        last_gradient, queued = rows["computing"][-1][3], [rows[f"buffer {number}"][1][2] for number in range(2)]
        assert queued[0] <= last_gradient <= queued[1]


@pytest.mark.parametrize("num_steps", [NUM_UNTIL_PROFILED, ALL_STEPS])
def test_what_arrives_after_the_update_is_traced_with_its_own_step_and_told_of_with_the_next(
    rank_pool: RankPool, tmp_path: Path, num_steps: int
) -> None:
    rank_pool.run_in_process_group(2, train, BEHIND, str(tmp_path), "toy-last-first", num_steps)
    traced = lines(tmp_path / "trace.jsonl")
    assert [line["step"] for line in traced] == list(range(NUM_SETTLING, NUM_UNTIL_PROFILED))
    for line in traced:
        crossed = [span for span in line["spans"] if span["row"] == "link 0"]
        assert [span["name"] for span in crossed] == ["buffer 1", "buffer 0"]
        [backward] = [
            span["end"] for span in line["spans"] if (span["phase"], span["name"]) == ("BACKWARD", "0.weight")
        ]
        assert all(span["begin"] >= backward for span in crossed)
    first, *others = lines(tmp_path / "metrics.jsonl")
    sizes, sent = (17, 352), (1, 4)  # by buffer: elements, and how many are sent of a hundredth
    assert first["achieved_ratio"] == pytest.approx(sent[1] / sizes[1], rel=1e-3)
    assert {round(each["achieved_ratio"], 4) for each in others} == {round(sum(sent) / sum(sizes), 4)}
    assert all(0 < each["missing_rate"] < 1 for each in others)


def test_a_trace_viewer_gets_them_with_the_controllers_plans(run: Path, tmp_path: Path) -> None:
    decision = {"record": "decision", "step": 5, "time": 0.25, "solving_seconds": 0.5, "trigger": "network"}
    decision |= {"adopted": {"name": "0.01/all-gather"}, "previous": {"name": "dense-ring"}, "reason": "it is faster"}
    decision |= {"id": 1, "changed": True, "inputs": {}, "pareto": []}
    (run / "decisions.jsonl").write_text(json.dumps(decision) + "\n")
    out = tmp_path / "trace.json"
    assert main(["trace", str(run), "--out", str(out)]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    timed = [event for event in events if event["ph"] == "X"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert sum(event["name"] == "STEP" for event in timed) == NUM_STEPS
    [plan] = [event for event in timed if event["name"] == "PLAN"]
    assert (plan["ts"], plan["dur"], plan["args"]["reason"]) == (250_000, 500_000, "it is faster")
    named = {(event["pid"], event.get("tid")) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in timed} == named
    assert len({row["args"]["name"] for row in events if row["name"] == "thread_name"}) == len(named)


@pytest.mark.parametrize(("folder", "said"), [("none", "no such directory"), ("", "holds no profiled step")])
def test_what_holds_no_trace_is_refused(
    folder: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(tmp_path / folder)]) == 2
    assert said in capsys.readouterr().err
