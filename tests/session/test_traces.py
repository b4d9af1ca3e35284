"""Trials beside what scripts do: nothing that they count, keep or evaluate shows that there was one."""

from __future__ import annotations

import collections
import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_pool import RankPool
from test_session import Script, make_session, network
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.checkpoint.optimizer_state import OptimizerState
from trimtab.collectives.group import Group
from trimtab.plan import FusionPlan, Plan
from trimtab.records.recorder import Recorder
from trimtab.session import Session
from trimtab.step_number import StepInTrial

CANDIDATES = [Plan.parse("0.3/all-gather", FusionPlan((0, 68))), Plan.parse("dense", FusionPlan((0, 68)))]
TRIALS = {"trials": [plan.to_json() for plan in CANDIDATES], "iterations": 4}
STEPS = 16


class Named(TensorDataset):
    """Batches that scripts take to pieces: dictionaries of tensors."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return {"x": x, "labels": y}


def loader(**options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, 8, generator=generator)
    return DataLoader(Named(x, torch.randint(0, 4, (400,), generator=generator)), batch_size=8, **options)


def begin(rank: int, trials: bool, **options: Any) -> tuple[Session, nn.Module, Any, Script | None]:
    model = network()
    messages = {4: TRIALS, 9: TRIALS} if trials else {}
    script = Script(messages) if rank == 0 else None
    session, optimizer, _ = make_session(Plan.parse("0.1/all-gather"), model, control_client=script, **options)
    torch.manual_seed(rank)
    return session, model, optimizer, script


def weights_of(model: nn.Module) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in model.state_dict().values()])


def step(session: Session, model: nn.Module, batch: Any) -> None:
    labels = batch.pop("labels")
    batch["x"].sub_(0.5).div_(2.0)  # in place, as normalising does
    nn.functional.cross_entropy(model(batch["x"]), labels).backward()
    session.step()


# Loops ---------------------------------------------------------------------------------------------------------------


def plain(session: Session, model: nn.Module, seen: dict[str, Any]) -> None:
    for batch in session.batches(loader()):
        step(session, model, batch)
        if session.steps == STEPS:
            break


def evaluating_by_steps(session: Session, model: nn.Module, seen: dict[str, Any]) -> None:
    seen["evaluations"] = []
    for batch in session.batches(loader()):
        step(session, model, batch)
        if session.steps % 4 == 0:
            seen["evaluations"].append(int(session.steps))
        if session.steps == STEPS:
            break


def validating_inside(session: Session, model: nn.Module, seen: dict[str, Any]) -> None:
    """A nested loop over `batches`, and an evaluation at every step, under trial or not."""
    seen["validated"], seen["outputs"] = [], []
    x = torch.ones(4, 8)
    for batch in session.batches(loader()):
        step(session, model, batch)
        model.eval()
        with torch.no_grad():
            seen["outputs"].append((int(session.steps), model(x).clone()))
            seen["validated"].append(sum(len(validation["labels"]) for validation in session.batches(loader())))
        model.train()
        if session.steps == STEPS:
            break


def holding_the_iterator(session: Session, model: nn.Module, seen: dict[str, Any]) -> None:
    """The loop is left in a trial, twice, while something holds its iterator."""
    for rounds in (6, 100):
        batches = seen.setdefault("held", [])
        batches.append(session.batches(loader()))
        for number, batch in enumerate(batches[-1], 1):
            step(session, model, batch)
            if number == rounds or session.steps == STEPS:
                break
        model.eval()
        with torch.no_grad():
            seen.setdefault("weights", []).append(weights_of(model))
        model.train()


LOOPS: list[Callable[[Session, nn.Module, dict[str, Any]], None]] = [plain, evaluating_by_steps, validating_inside]


def running(rank: int, size: int, loop: Callable[..., None], trials: bool) -> dict[str, Any]:
    session, model, _, script = begin(rank, trials)
    seen: dict[str, Any] = {}
    loop(session, model, seen)
    seen.pop("held", None)
    result = {**seen, "trained": weights_of(model), "steps": session.steps}
    result["tried"] = [len(reports) for reports in script.reports] if script else None
    session.close()
    return result


@pytest.mark.parametrize("loop", LOOPS)
def test_what_a_loop_does_beside_training_is_what_it_is_without_trials(
    loop: Callable[..., None], rank_pool: RankPool
) -> None:
    tried = rank_pool.run_in_process_group(2, running, loop, True)
    plainly = rank_pool.run_in_process_group(2, running, loop, False)
    assert tried[0]["tried"] == [2, 2], "both candidates, twice"
    for ours, theirs in zip(tried, plainly, strict=True):
        assert torch.equal(ours["trained"], theirs["trained"])
        assert ours["steps"] == theirs["steps"] == STEPS
        assert ours.get("evaluations") == theirs.get("evaluations")
        if "outputs" in ours:
            outputs = dict(reversed(ours["outputs"]))
            assert len(ours["outputs"]) > len(theirs["outputs"]), "evaluated in trials too"
            assert all(torch.equal(output, outputs[number]) for number, output in ours["outputs"]), "of one step, alike"
            assert all(torch.equal(output, outputs[number]) for number, output in theirs["outputs"])


def leaving_held(rank: int, size: int, trials: bool, after: str, in_a_list: bool) -> dict[str, Any]:
    """Leave a loop in its second trial step while its iterator is held; then go on, or close."""
    model = network()
    script = Script({4: TRIALS} if trials else {}) if rank == 0 else None
    attached = nn.ModuleList([model]) if in_a_list else model
    session, _, _ = make_session(Plan.parse("0.1/all-gather"), attached, control_client=script)
    torch.manual_seed(rank)
    held = session.batches(loader())
    for number, batch in enumerate(held, 1):
        step(session, model, batch)
        if number == (7 if trials else 5):
            break
    in_trial = session.in_trial
    if after == "evaluates":
        model.eval()
        with torch.no_grad():
            model(torch.ones(4, 8))
        model.train()
    elif after == "trains on":
        x = torch.ones(4, 8)
        model(x).square().mean().backward()
        session.step()
    else:
        session.close()
    result = {"in trial": in_trial, "weights": weights_of(model), "steps": int(session.steps)}
    if after != "closes":
        session.close()
    del held
    return result


@pytest.mark.parametrize(
    ("after", "in_a_list"), [("evaluates", False), ("evaluates", True), ("trains on", False), ("closes", False)]
)
def test_a_trial_whose_loop_was_left_with_its_iterator_held_is_undone(
    after: str, in_a_list: bool, rank_pool: RankPool
) -> None:
    """So it is where the model attached is never called itself, but a part of it is."""
    tried = rank_pool.run_in_process_group(2, leaving_held, True, after, in_a_list)
    plainly = rank_pool.run_in_process_group(2, leaving_held, False, after, in_a_list)
    for ours, theirs in zip(tried, plainly, strict=True):
        assert ours.pop("in trial")
        assert not theirs.pop("in trial")
        assert ours["steps"] == theirs["steps"]
        assert torch.equal(ours["weights"], theirs["weights"])


class Encoder(nn.Module):
    """A model that scripts evaluate in more ways than by calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)

    def predict(self, x: Tensor) -> Tensor:
        return self.body(x)


EVALUATIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "called": lambda model, x: model(x),
    "by a method": lambda model, x: model.predict(x),
    "by forward": lambda model, x: model.forward(x),
    "by a part": lambda model, x: model.body[0](x),
    "saved": lambda model, x: weights_of(model),
}


def evaluating(rank: int, size: int, how: str) -> tuple[int, int]:
    """How often it is evaluated after a step, in trials too, and how many results there are of each step."""
    model = Encoder()
    session, _, _ = make_session(
        Plan.parse("0.1/all-gather"), model, control_client=Script({4: TRIALS}) if rank == 0 else None
    )
    results: dict[int, list[Tensor]] = {}
    x = torch.ones(4, 8)
    for batch in session.batches(loader()):
        step(session, model, batch)
        model.eval()
        with torch.no_grad():
            results.setdefault(int(session.steps), []).append(EVALUATIONS[how](model, x).clone())
        model.train()
        if session.steps == 8:
            break
    session.close()
    different = [len({tuple(each.reshape(-1).tolist()) for each in of_step}) for of_step in results.values()]
    return sum(map(len, results.values())), max(different)


@pytest.mark.parametrize("how", EVALUATIONS)
def test_however_a_script_evaluates_it_sees_the_model_before_the_trial(how: str, rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, evaluating, how) == [(8 + 8, 1)] * 2


def reporting_a_left_trial(rank: int, size: int, folder: Path) -> None:
    model = Encoder()
    session, _, _ = make_session(
        Plan.parse("0.1/all-gather"),
        model,
        control_client=Script({4: TRIALS}) if rank == 0 else None,
        recorder=Recorder(folder if rank == 0 else None),
    )
    held = session.batches(loader())
    for number, batch in enumerate(held, 1):
        if number == 7:
            break  # the batch is drawn, and not trained on
        step(session, model, batch)
    assert session.in_trial
    model.eval()
    with torch.no_grad():
        value = float(model(torch.ones(4, 8)).sum())
    if rank == 0:
        session.report(value=value)
    session.close()
    with torch.no_grad():
        assert float(model(torch.ones(4, 8)).sum()) == value
    del held


def test_what_is_reported_after_a_loop_that_was_left_in_a_trial_is_of_real_weights_and_recorded(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    rank_pool.run_in_process_group(2, reporting_a_left_trial, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["event"], line["step"]) for line in lines if "event" in line] == [("evaluation", 5)]


def zipped(session: Session) -> Iterator[tuple[Any, Any]]:
    return zip(session.batches(loader()), session.batches(loader()), strict=True)


def second_drawn_by_hand(session: Session) -> Iterator[tuple[Any, Any]]:
    second = iter(session.batches(loader()))
    for batch in session.batches(loader()):
        yield batch, next(second)


def with_two_loops(rank: int, size: int, pairs: Callable[[Session], Any], trials: bool) -> tuple[int, Tensor, Any, str]:
    session, model, _, script = begin(rank, trials)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for first, second in pairs(session):
            loss = sum(nn.functional.cross_entropy(model(each["x"]), each["labels"]) for each in (first, second))
            loss.backward()
            session.step()
            if session.steps == STEPS:
                break
    result = int(session.steps), weights_of(model), script.reports if script else None, said.getvalue()
    session.close()
    return result


@pytest.mark.parametrize("pairs", [zipped, second_drawn_by_hand])
def test_steps_of_several_loops_are_left_without_trials(pairs: Callable[..., Any], rank_pool: RankPool) -> None:
    tried = rank_pool.run_in_process_group(2, with_two_loops, pairs, True)
    plainly = rank_pool.run_in_process_group(2, with_two_loops, pairs, False)
    assert tried[0][2] == [[], []], "none ran"
    for ours, theirs in zip(tried, plainly, strict=True):
        assert ours[0] == theirs[0] == STEPS
        assert torch.equal(ours[1], theirs[1])
        assert "batches of several loops" in ours[3]


def now_and_then_a_second(rank: int, size: int, trials: bool) -> tuple[list[int], Tensor]:
    """Every fifth step draws a batch of another loop, first during the trials."""
    session, model, _, _ = begin(rank, trials)
    second = session.batches(DataLoader(TensorDataset(torch.arange(80.0)), batch_size=2))
    drawn = []
    for number, batch in enumerate(session.batches(loader()), 1):
        if number % 5 == 0:
            (extra,) = next(second)
            if not session.in_trial:
                drawn.append(int(extra[0]))
        nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
        session.step()
    session.close()
    return drawn, weights_of(model)


def test_what_a_trial_draws_from_another_loop_is_given_again(rank_pool: RankPool) -> None:
    for drawn, _ in rank_pool.run_in_process_group(2, now_and_then_a_second, True):
        assert len(drawn) > 2
        assert drawn == list(range(drawn[0], drawn[-1] + 1, drawn[1] - drawn[0])), "one after another"
        assert drawn[0] < 2, "from the first on"


# What a step changes beside the model --------------------------------------------------------------------------------


class Average:
    """Averaged weights, with the pair of state methods and nothing else."""

    def __init__(self, model: nn.Module) -> None:
        self.average, self.updates = weights_of(model), 0

    def update(self, model: nn.Module) -> None:
        self.average, self.updates = 0.9 * self.average + 0.1 * weights_of(model), self.updates + 1

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average, self.updates = state["average"], state["updates"]


def with_also(rank: int, size: int, trials: bool) -> tuple[Tensor, Tensor, int, float]:
    """Averaged weights, a second optimizer and its scheduler, which the script steps itself."""
    model = network()
    average = Average(model)
    second = torch.optim.SGD([model[0].weight], lr=0.1, momentum=0.5)
    second_scheduler = torch.optim.lr_scheduler.StepLR(second, step_size=3)
    script = Script({4: TRIALS} if trials else {}) if rank == 0 else None
    also = [average, second, second_scheduler]
    session, _, _ = make_session(Plan.parse("0.1/all-gather"), model, control_client=script, also=also)
    torch.manual_seed(rank)
    for batch in session.batches(loader()):
        nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
        second.step()
        session.step()
        second_scheduler.step()
        average.update(model)
        if session.steps == STEPS:
            break
    result = weights_of(model), average.average, average.updates, second.param_groups[0]["lr"]
    session.close()
    return result


def test_whatever_was_handed_over_is_put_back(rank_pool: RankPool) -> None:
    tried = rank_pool.run_in_process_group(2, with_also, True)
    plainly = rank_pool.run_in_process_group(2, with_also, False)
    for ours, theirs in zip(tried, plainly, strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])
        assert ours[2:] == theirs[2:] == (STEPS, pytest.approx(0.1**6))


def with_a_scheduler_of_its_own(rank: int, size: int, handed_over: bool) -> str:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    session = Session(
        model,
        optimizer,
        group=Group.connect(),
        plan=Plan.parse("0.1/all-gather"),
        recorder=Recorder(None),
        control_client=Script({2: TRIALS, 5: TRIALS}) if rank == 0 else None,  # type: ignore[arg-type]
        also=[scheduler] if handed_over else [],
    )
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for batch in session.batches(loader()):
            step(session, model, batch)
    session.close()
    return said.getvalue()


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_scheduler_that_trials_would_move_on_is_warned_of_once(handed_over: bool, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, with_a_scheduler_of_its_own, handed_over)
    assert first.count("a learning rate scheduler wraps the optimizer") == (0 if handed_over else 1)
    assert second == ""


def test_an_optimizer_s_state_comes_back_in_its_own_types() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weight = model.weight
    optimizer.state[weight] = {
        "count": torch.tensor([1, 2**40]),
        "moment": torch.ones(2, 3, dtype=torch.bfloat16),
        "history": [torch.zeros(2)],
        "step": 3,
    }
    moment = optimizer.state[weight]["moment"]
    kept = OptimizerState(optimizer)
    moment.mul_(5)
    optimizer.state[weight]["count"] = torch.tensor([9.0])
    optimizer.state[weight]["history"].append(torch.ones(1))
    optimizer.state[weight]["step"] += 1
    optimizer.state[model.bias]["step"] = 1
    optimizer.param_groups[0]["lr"] = 7.0
    for _ in range(2):
        kept.restore()
        held = optimizer.state[weight]
        assert held["moment"] is moment
        assert (moment.dtype, moment.float().unique().tolist()) == (torch.bfloat16, [1.0])
        assert (held["count"].dtype, held["count"].tolist()) == (torch.int64, [1, 2**40])
        assert [each.tolist() for each in held["history"]] == [[0.0, 0.0]]
        assert held["step"] == 3
        assert model.bias not in optimizer.state
        assert optimizer.param_groups[0]["lr"] == 0.1
        held["history"].clear()


# What cannot be replayed, and ranks that differ ----------------------------------------------------------------------


class Stubborn(collections.UserDict[str, Any]):
    """A batch that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("it holds a lock")


class StubbornLoader:
    """A loader of such batches on rank 1, and of plain ones elsewhere."""

    def __init__(self, rank: int) -> None:
        self.kind = Stubborn if rank == 1 else dict

    def __len__(self) -> int:
        return 60

    def __iter__(self) -> Iterator[Any]:
        return (self.kind(batch) for batch in DataLoader(Named(torch.randn(480, 8), torch.zeros(480).long()), 8))


def with_stubborn_batches(rank: int, size: int) -> tuple[int, list[list[Any]] | None, Tensor]:
    session, model, _, script = begin(rank, True)
    for batch in session.batches(StubbornLoader(rank)):
        nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
        session.step()
        if session.steps == STEPS:
            break
    result = int(session.steps), script.reports if script else None, weights_of(model)[:32]
    session.close()
    return result


def test_no_rank_tries_where_one_cannot_replay(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, with_stubborn_batches)
    assert first[:2] == (STEPS, [[], []]), "told that none ran"
    assert second[0] == STEPS
    assert torch.equal(first[2], second[2])


def leaving_out_a_batch(rank: int, size: int, at: int) -> tuple[int, list[Any] | None, Tensor]:
    """Rank 1 leaves out one batch, without a step: before the trials, or among them."""
    session, model, _, script = begin(rank, True)
    for number, batch in enumerate(session.batches(loader()), 1):
        if rank == 1 and number == at:
            continue
        nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
        session.step()
        if session.steps == STEPS:
            break
    tried = [[report.num_steps for report in reports] for reports in script.reports] if script else None
    result = int(session.steps), tried, torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    session.close()
    return result


@pytest.mark.parametrize("at", [2, 6], ids=["before the trials", "in a trial"])
def test_a_rank_that_leaves_out_a_batch_tries_with_the_others(at: int, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, leaving_out_a_batch, at)
    assert first[0] == second[0] == STEPS
    assert first[1] == [[3, 3], [3, 3]]
    assert torch.equal(first[2], second[2])


def stepping_out_of_turn(rank: int, size: int) -> str:
    """Rank 1 leaves its loop in a trial, for another: it trains while rank 0 tries."""
    session, model, _, _ = begin(rank, True)
    try:
        for rounds in (6, 100) if rank == 1 else (100,):
            for number, batch in enumerate(session.batches(loader()), 1):
                step(session, model, batch)
                if number == rounds or session.steps == STEPS:
                    break
    except Exception as error:
        return str(error)
    return ""


def test_a_rank_that_trains_while_another_tries_is_found_out_at_once(rank_pool: RankPool) -> None:
    said = rank_pool.run_in_process_group(2, stepping_out_of_turn)
    assert any("trial 1 where this rank is at" in message or "trial 1" in message for message in said), said
    assert all("the ranks disagree" in message for message in said)


# Counting ------------------------------------------------------------------------------------------------------------


def test_a_step_in_a_trial_equals_no_number_and_orders_as_the_last_one() -> None:
    steps = StepInTrial(8)
    conditions = [steps % 4 == 0, steps == 8, (steps + 1) % 3 == 0, (steps + 8) // 4 == 4]
    conditions += [steps & 3 == 0, divmod(steps, 4)[1] == 0, -steps % 4 == 0, 100 - steps == 92, steps >> 3 == 1]
    assert not any(conditions)
    assert (bool(steps % 4), not steps % 4) == (True, False)
    assert steps != 8
    assert steps >= 8
    assert not steps > 8
    assert steps < 9
    assert f"{steps:4d} {steps}" == "   8 8"
    assert list(range(10))[steps] == 8
    assert steps * 0.5 == 4.0
    assert steps / 2 == 4.0
