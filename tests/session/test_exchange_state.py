"""What exchanges carry from step to step outlives processes: each rank saves it, and as many or others go on by it."""

from __future__ import annotations

import io
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankError, RankPool
from kit.training.held_back import anchor_of, total_of
from torch import Tensor, nn
from trimtab.checkpoint import rank_files
from trimtab.checkpoint.rank_files import RankFile, whole_steps
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.papers.bytescheduler import priority
from trimtab.papers.deft import queues
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport import extra_links as extra_links
from trimtab.transport.group import Group
from trimtab_api.errors import UserError

BEFORE, AFTER = 7, 6
CUTS = (0, 40, 400)
NUM_BUCKETS = len(CUTS)
FORWARD, BACKWARD, COMPRESS, WIRE = ((seconds,) * NUM_BUCKETS for seconds in (0.1, 0.2, 0.0, 0.6))
TIMES = StepTimes(FORWARD, BACKWARD, COMPRESS, WIRE)
DEFT = queues.timetable(TIMES)
TIMETABLES = {"deft:preserver=off": DEFT, "priority": priority.timetable(TIMES)}
OF_TWO_LINKS = queues.timetable(replace(TIMES, wire=(0.5,) * NUM_BUCKETS, link_slowness=(1.0, 1.65)))


def plan_of(text: str) -> Plan:
    plan = Plan.parse(text, FusionPlan(CUTS)).with_version(3)
    return replace(plan, timetable=TIMETABLES.get(plan.schedule))


PLANS = [
    "0.05/all-gather",
    "0.05/exdyna/sparsifier=sidco",
    "0.05/ok-topk/sparsifier=dgc/schedule=priority",
    "0.1/spardl:teams=3/sparsifier=mstopk",
    "0.1/artopk-star-ring/sparsifier=random-k/source=gradient:momentum=0.9",
    "0.1/all-gather/schedule=deft:preserver=off",
    "0.1/artopk-star-ring/source=update:outerMomentum=0.9:outerRate=0.7:steps=3",
]


class Run:
    """A rank that trains by what a generator of its own draws, with a parameter that is never used."""

    def __init__(self, text: str, plan: Plan, saved: bytes | None = None, *, has_two_links: bool = False) -> None:
        """The optimizer is one for the plan of ``text``; ``plan`` is what training begins with."""
        torch.manual_seed(0)
        self.model = nn.ModuleDict(
            {"body": nn.Sequential(nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 5)), "idle": nn.Linear(3, 3)}
        )
        momentum = 0.0 if "momentum" in text else 0.9
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=momentum)
        if "update" in text:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        if saved is not None:  # rank 0's own checkpoint, as every script has one
            model, optimizer = torch.load(io.BytesIO(saved), weights_only=True)
            self.model.load_state_dict(model)
            self.optimizer.load_state_dict(optimizer)
        self.group = Group.connect()
        if has_two_links:
            extra_links.join(self.group, "lo", b"", 30.0)
        self.session = Session(self.model, self.optimizer, group=self.group, plan=plan, recorder=Recorder(None))

    def checkpoint(self) -> bytes:
        out = io.BytesIO()
        torch.save((self.model.state_dict(), self.optimizer.state_dict()), out)
        return out.getvalue()

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            step = int(self.session.steps)
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * step + self.group.rank))
            self.model["body"](x).square().mean().backward()
            self.session.step()

    def weights(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()

    def pending_step(self) -> Tensor:
        """What this rank holds back, in float64: residual, and what waits in its buckets."""
        total = total_of(self.session, "residual", "waiting")
        if self.session.plan.local_steps:
            own = [parameter.detach().flatten() for parameter in self.model.parameters()]
            total += anchor_of(self.session) - torch.cat(own[::-1])
        return total

    def arrived(self) -> Tensor:
        return total_of(self.session, "arrived")


def begun(rank: int, size: int, text: str, folder: Path) -> tuple[bytes, Tensor, Tensor, Tensor, Tensor, Any]:
    """Saves after some steps, and trains on: what the others are compared with."""
    run = Run(text, plan_of(text))
    run.train(3)
    run.session.save_exchange(folder)
    run.train(BEFORE - 3)
    run.session.save_exchange(folder)
    saved, pending_step, arrived = run.checkpoint(), run.pending_step(), run.arrived()
    run.train(AFTER)
    weights, residual = run.weights(), run.pending_step()
    version = run.session.plan.version
    run.session.close()
    return saved, pending_step, arrived, weights, residual, version


def resumed(rank: int, size: int, text: str, folder: Path, saved: bytes) -> tuple[Tensor, Tensor, Any]:
    run = Run(text, Plan.parse("dense"), saved)
    run.session.load_exchange(folder)
    assert run.session.steps == BEFORE
    run.train(AFTER)
    answer = run.weights(), run.pending_step(), run.session.plan.version
    run.session.close()
    return answer


def of_another_world(rank: int, size: int, text: str, folder: Path, saved: bytes) -> tuple[Tensor, Tensor]:
    run = Run(text, plan_of(text), saved)
    run.session.load_exchange(folder)
    held, weights = run.pending_step() + run.arrived(), run.weights()
    run.train(2)
    assert torch.isfinite(run.weights()).all()
    run.session.close()
    return held, weights


@pytest.mark.parametrize("text", PLANS)
def test_new_processes_go_on_bit_for_bit_and_another_number_of_them_loses_nothing(
    rank_pool: RankPool, tmp_path: Path, text: str
) -> None:
    whole = rank_pool.run_in_process_group(3, begun, text, tmp_path)
    assert len(list(tmp_path.iterdir())) == 6, "of the last two steps"
    saved = whole[0][0]
    if text in PLANS[:2]:
        rank_pool.close()  # as where a job was killed
    for (*_, weights, residual, version), again in zip(
        whole, rank_pool.run_in_process_group(3, resumed, text, tmp_path, saved), strict=True
    ):
        assert torch.equal(weights, again[0])
        assert torch.equal(residual, again[1])
        assert version == again[2] == 3
    if text not in PLANS[:1] + PLANS[4:]:
        return
    (tmp_path / RankFile(BEFORE + 9, 3, 0).name).write_bytes(b"of a step that not every rank had written")
    before = torch.stack([each[1] for each in whole]).mean(0) + whole[0][2]
    assert before.abs().max() > 0
    for size in (2, 4):
        answers = rank_pool.run_in_process_group(size, of_another_world, text, tmp_path, saved)
        torch.testing.assert_close(torch.stack([held for held, _ in answers]).mean(0), before, rtol=1e-5, atol=1e-6)
        assert all(torch.equal(answers[0][1], weights) for _, weights in answers)


def over_two_links(rank: int, size: int, text: str, folder: Path) -> tuple[bytes, Tensor, Tensor]:
    run = Run(text, replace(plan_of(text), timetable=OF_TWO_LINKS), has_two_links=True)
    run.train(BEFORE)
    run.session.save_exchange(folder)
    saved, held = run.checkpoint(), run.pending_step() + run.arrived()
    run.train(AFTER)
    assert run.group.extra_links[0].num_bytes > 0
    run.session.close()
    return saved, held, run.weights()


def over_one_link(rank: int, size: int, text: str, folder: Path, saved: bytes) -> tuple[Tensor, Tensor]:
    run = Run(text, Plan.parse("dense"), saved)
    run.session.load_exchange(folder)
    held = run.pending_step() + run.arrived()
    run.train(AFTER)
    run.session.close()
    return held, run.weights()


def test_a_plan_of_two_links_goes_on_over_one(rank_pool: RankPool, tmp_path: Path) -> None:
    before = rank_pool.run_in_process_group(3, over_two_links, PLANS[5], tmp_path)
    assert any(send.link == 1 for iteration in OF_TWO_LINKS for send in iteration.sends)
    after = rank_pool.run_in_process_group(3, over_one_link, PLANS[5], tmp_path, before[0][0])
    for (_, held, weights), (held_then, weights_then) in zip(before, after, strict=True):
        assert torch.equal(held, held_then)
        assert torch.equal(weights, weights_then), "which link a bucket crosses changes no bit"
    by_two = rank_pool.run_in_process_group(2, over_one_link, PLANS[5], tmp_path, before[0][0])
    expected = torch.stack([held for _, held, _ in before]).mean(0)
    torch.testing.assert_close(torch.stack([held for held, _ in by_two]).mean(0), expected, rtol=1e-5, atol=1e-6)


def normalized(rank: int, size: int, folder: Path, saved: bytes | None) -> tuple[bytes, list[Tensor], Any]:
    """Saves in the midst of a round, or goes on from there, and ends it; what rank 0 has saved, and what it came to."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model.register_buffer("longest", torch.zeros(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=5)
    if saved is not None:
        for each, kept in zip((model, optimizer, scaler), torch.load(io.BytesIO(saved)), strict=True):
            each.load_state_dict(kept)
    plan = Plan.parse("0.3/all-gather/source=update:steps=4")
    scale = LossScale(scaler)
    session = Session(
        model, optimizer, group=Group.connect(), plan=plan, recorder=Recorder(None), options=SessionOptions(scale=scale)
    )
    out = io.BytesIO()
    if saved is not None:
        session.load_exchange(folder)
    for number in range(0 if saved is None else 6, 11):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(100 * number + rank))
        if number < 6:
            model.longest = torch.full((1 + rank,), float(rank))
        loss = model(x).square().mean() * (float("inf") if (number, rank) == (5, 1) else 1.0)
        scaler.scale(loss).backward()
        session.step()
        if number == 5 and saved is None:
            session.save_exchange(folder)
            torch.save((model.state_dict(), optimizer.state_dict(), scaler.state_dict()), out)
        if number == 6:
            within = scaler.state_dict(), [each.clone() for each in model.state_dict().values()]
    after = scaler.state_dict(), [each.clone() for each in model.state_dict().values()]
    session.close()
    return out.getvalue(), within[1] + after[1], (within[0], after[0])


def test_a_rank_goes_on_in_its_round_with_its_own_buffers_and_loss_scale(rank_pool: RankPool, tmp_path: Path) -> None:
    """All ranks once went on with rank 0's."""
    whole = rank_pool.run_in_process_group(2, normalized, tmp_path, None)
    again = rank_pool.run_in_process_group(2, normalized, tmp_path, whole[0][0])
    for (_, tensors, scales), (_, its_tensors, its_scales) in zip(whole, again, strict=True):
        assert all(torch.equal(mine, its) for mine, its in zip(tensors, its_tensors, strict=True))
        assert scales == its_scales
    assert whole[0][2][0] != whole[1][2][0], "each had its own"


def refused(rank: int, size: int, folder: Path, saved: bytes) -> list[str]:
    """What is said where a state cannot be taken up, or not be kept."""
    said = []
    run = Run(PLANS[0], plan_of(PLANS[0]))
    file = folder / "a file"
    if rank == 0:
        file.write_text("")
    run.session.barrier()
    for act in (
        lambda: run.session.load_exchange(folder / "nowhere"),
        lambda: run.session.load_exchange(folder / "state"),  # of other weights
        lambda: run.session.save_exchange(file if rank else folder / "kept"),
    ):
        with pytest.raises(UserError) as error:
            act()
        said.append(str(error.value))
    (run.model["body"](torch.randn(2, 8))).sum().backward()
    with pytest.raises(UserError, match="comes between two steps"):
        run.session.save_exchange(folder / "kept")
    run.session.step()
    with pytest.raises(UserError, match="comes before the first step"):
        run.session.load_exchange(folder / "state")
    run.session.close()
    return said


def test_a_state_that_does_not_fit_is_refused_on_every_rank(rank_pool: RankPool, tmp_path: Path) -> None:
    whole = rank_pool.run_in_process_group(3, begun, PLANS[0], tmp_path / "state")
    for rank, said in enumerate(rank_pool.run_in_process_group(3, refused, tmp_path, whole[0][0])):
        assert "has no step with the files of all ranks" in said[0]
        assert "is of other weights; load the model's own checkpoint of that step first" in said[1]
        assert "cannot be written" in said[2]
        assert said[2].startswith("rank 1: ") == (rank == 0)
    damaged = tmp_path / "state" / RankFile(BEFORE, 3, 1).name
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.raises(RankError, match=r"is damaged.*; remove the files of its step"):
        rank_pool.run_in_process_group(3, resumed, PLANS[0], tmp_path / "state", whole[0][0])


def test_the_newest_step_counts_of_which_all_ranks_have_written() -> None:
    files = [RankFile(5, 2, 0), RankFile(5, 2, 1), RankFile(9, 2, 1), RankFile(7, 3, 0), RankFile(7, 3, 1)]
    assert whole_steps(files) == [(5, 2)]
    assert whole_steps([*files, RankFile(7, 3, 2)]) == [(7, 3), (5, 2)]
    assert whole_steps([RankFile(5, 2, 0)]) == []


def damages(content: bytes) -> dict[str, bytes]:
    """What disks and kills make of a file."""
    draw, made = random.Random(0), {}
    for number in range(20):
        position = draw.randrange(len(content))
        made[f"flip {number}"] = content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :]
    for number in range(5):
        start = draw.randrange(len(content) - 512)
        made[f"zeros {number}"] = content[:start] + bytes(512) + content[start + 512 :]
    return {**made, "torn": content[:1000], "empty": b"", "longer": content + b"more", "no checksum": content[:-48]}


def loads_damaged(rank: int, size: int, folder: Path, saved: bytes) -> list[str]:
    """What was wrong; each damage is refused by the name of the file, and changes nothing."""
    run, wrong = Run(PLANS[0], plan_of(PLANS[0]), saved), []
    run.session.load_exchange(folder)  # so that residuals are not zero
    before = run.pending_step()
    assert before.abs().max() > 0
    file = folder / RankFile(BEFORE, size, 1).name
    content = file.read_bytes()
    for name, damaged in damages(content).items():
        run.session.barrier()
        if rank == 1:
            file.write_bytes(damaged)
        run.session.barrier()
        try:
            run.session.load_exchange(folder)
            wrong.append(f"{name}: accepted")
        except UserError as error:
            wrong += [] if file.name in str(error) and "is damaged" in str(error) else [f"{name}: {error}"]
        wrong += [] if torch.equal(run.pending_step(), before) else [f"{name}: changed what is held back"]
    run.session.close()
    return wrong


def test_a_damaged_file_is_refused_by_its_name_before_anything_changes(rank_pool: RankPool, tmp_path: Path) -> None:
    saved = rank_pool.run_in_process_group(2, begun, PLANS[0], tmp_path)[0][0]
    assert rank_pool.run_in_process_group(2, loads_damaged, tmp_path, saved) == [[], []]


def test_a_renamed_file_is_refused(rank_pool: RankPool, tmp_path: Path) -> None:
    saved = rank_pool.run_in_process_group(2, begun, PLANS[0], tmp_path)[0][0]
    first, second = (tmp_path / RankFile(BEFORE, 2, rank).name for rank in range(2))
    second.write_bytes(first.read_bytes())
    with pytest.raises(RankError, match="holds the state of another rank or step"):
        rank_pool.run_in_process_group(2, resumed, PLANS[0], tmp_path, saved)


def removal_takes_long(rank: int, size: int, folder: Path) -> bool:
    """Whether rank 0's removal of old files, which takes long, has ended when this rank's save has."""
    run = Run("0.1/all-gather", plan_of("0.1/all-gather"))
    run.train(1)
    removed = folder / "removed"
    with pytest.MonkeyPatch.context() as patch:
        if rank == 0:
            patch.setattr(rank_files, "remove_others", lambda *_: (time.sleep(0.5), removed.touch()))
        run.session.save_exchange(folder / "exchange")
    has_ended = removed.exists()
    run.session.close()
    return has_ended


def test_no_rank_begins_its_next_save_while_another_still_removes_files(rank_pool: RankPool, tmp_path: Path) -> None:
    assert rank_pool.run_in_process_group(2, removal_takes_long, tmp_path) == [True, True]
