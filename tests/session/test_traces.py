"""Trials beside what scripts do: nothing that they count, keep or evaluate shows that there was one."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.random_training import make_session, network
from kit.training.scripted_control import Script
from kit.training.trial_scripts import STEPS, TRIALS, begin, loader, step, weights_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session


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


@pytest.mark.pattern("nested validation loops, metrics in the loop", works="works")
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
    held = iter(session.batches(loader()))
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


@pytest.mark.pattern(
    "a loop whose iterator the script keeps (`held = iter(...)`)", works="ends a trial with the next step"
)
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


@pytest.mark.pattern("evaluation between steps", works="sees the model before a trial")
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
    held = iter(session.batches(loader()))
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


@pytest.mark.pattern("batches of several loops (`zip`)", works="works, without trials")
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
