"""What compression holds back, and all else that exchanges carry from step to step, kept on disk and taken up again.

session.save_exchange("checkpoints/exchange")       # every rank, after a step; then rank 0 saves the model
...
session = trimtab.attach(model, optimizer)          # the model and optimizer of one of the last two saves
session.load_exchange("checkpoints/exchange")
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from trimtab_api.errors import UserError

from trimtab.checkpoint import rank_files
from trimtab.checkpoint.rank_files import RankFile
from trimtab.engine import checkpoint as carried_state
from trimtab.engine.step_engine import StepEngine
from trimtab.plan.plan import Plan
from trimtab.session.announcements import ControlMessages
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, gather_json, json_of, raise_together

#: Version of the files' contents.
_FORMAT = 4
#: Largest relative difference of equal weights' sums: they are added up in another order elsewhere.
_SAME_WEIGHTS = 1e-9


class ExchangeCheckpoint:
    """Keeps what one session's exchanges carry, and takes it up again."""

    def __init__(self, engine: StepEngine, control: ControlMessages, say: Callable[[str], None]) -> None:
        """``say`` takes a line for people."""
        self._engine, self._control, self._say = engine, control, say

    def save(self, folder: str | Path, step: int) -> None:
        """Keep on disk what every rank's exchange carries after ``step`` steps; see `Session.save_exchange`."""
        self._engine.settle()
        if self._engine.exchanger.is_mid_step or self._engine.pending_step.has_begun:
            raise UserError("comes between two steps; call it after session.step", field="session.save_exchange")
        engine, group, path = self._engine, self._engine.group, Path(folder)
        engine.rounds.flush()
        state = {
            "format": _FORMAT,
            "hosts": [list(host) for host in group.hosts],
            "weights": _sums(engine),
            "engine": carried_state.carried(engine),
            "control": json.dumps(self._control.state_dict()),
        }
        _on_all(group, lambda: rank_files.write(path, RankFile(step, group.size, group.rank), state))
        present = (step, group.size)
        before = [each for each in _whole_steps(group, path) if each < present]
        # Together, so that in a shared folder no rank removes what a faster one has begun to write of its next save.
        _on_all(group, lambda: rank_files.remove_others(path, (present, *before[:1])))

    def load(self, folder: str | Path, own_step: int) -> int:
        """Go on from the newest step whose files are whole, and return it; see `Session.load_exchange`.

        Args:
            folder: Where `save` wrote.
            own_step: The session's step; 0 if no state was loaded.
        """
        engine, group, path = self._engine, self._engine.group, Path(folder)
        whole = _whole_steps(group, path)
        if not whole:
            raise UserError("has no step with the files of all ranks", field="folder", value=str(folder))
        engine.settle()
        fitting = [each for each in whole if own_step in (0, each[0])]
        if engine.exchanger.is_mid_step or engine.pending_step.has_begun or not fitting:
            raise UserError(
                f"comes before the first step, or with a session of step {whole[0][0]}, whose state it is; this one is"
                f" at step {own_step}",
                field="session.load_exchange",
            )
        step, num_before, states = self._newest_that_fits(engine, path, fitting)
        needed = carried_state.ranks_needed(group.rank, group.size, num_before)
        held = {rank: state["engine"] for rank, state in states.items()}
        own_hosts = [list(host) for host in group.hosts]
        if num_before == group.size and states[group.rank].get("hosts", own_hosts) == own_hosts:
            carried_state.resume(engine, held[group.rank])
        else:
            carried_state.take_over(engine, held, num_before)
            others = "on other hosts" if num_before == group.size else f"from {num_before}"
            self._say(
                f"{group.size} ranks go on {others}: what these held back is shared out, and what schemes had"
                " learned is learned anew"
            )
        if engine.plan.timetable != Plan.from_json(held[needed[0]]["plan"]).timetable:
            self._say("the plan has more links than there are: the first takes their share, until planned anew")
        if group.rank == 0:
            self._control.load_state_dict(json.loads(states[0]["control"]), engine.plan)
        engine.exchanger.count_from(step)
        return step

    def _newest_that_fits(
        self, engine: StepEngine, folder: Path, whole: list[tuple[int, int]]
    ) -> tuple[int, int, dict[int, dict[str, Any]]]:
        """Return the newest step that nothing is wrong with: step, number of ranks, and by rank what this one needs.

        Nothing has changed where it raises, which it does by what is wrong with the newest of all.
        """
        refusal: UserError | None = None
        for step, num_before in whole:
            states: dict[int, dict[str, Any]] = {}
            reading = partial(_read, engine, folder, step, num_before, states)
            try:
                _on_all(engine.group, reading)
            except UserError as error:
                refusal = refusal or error
                continue
            if refusal is not None:
                self._say(f"goes on from step {step} of {folder}, for of step {whole[0][0]} {refusal}")
            return step, num_before, states
        assert refusal is not None
        raise refusal


def _read(engine: StepEngine, folder: Path, step: int, num_before: int, states: dict[int, dict[str, Any]]) -> None:
    """Read what this rank needs of a step into ``states``.

    Raises:
        UserError: Any of it cannot be used.
    """
    for rank in carried_state.ranks_needed(engine.group.rank, engine.group.size, num_before):
        file = RankFile(step, num_before, rank)
        states[rank] = rank_files.read(folder, file)
        _check(states[rank], engine, str(folder / file.name))


_FILES: Read[list[tuple[int, int, int]]] = json_of(list[tuple[int, int, int]])


def _whole_steps(group: Group, folder: Path) -> list[tuple[int, int]]:
    """Return the steps of which every rank's file is there, on some host, with the number of ranks; newest first."""
    own = [[each.step, each.num_ranks, each.rank] for each in rank_files.found(folder)]
    return rank_files.whole_steps(RankFile(*each) for found in gather_json(group, own, _FILES) for each in found)


def _on_all(group: Group, act: Callable[[], None]) -> None:
    """Do what may be refused on one rank; then raise the first refusal on all."""
    mistake: UserError | None = None
    try:
        act()
    except UserError as error:
        mistake = error
    raise_together(group, mistake)


def _check(state: dict[str, Any], engine: StepEngine, file: str) -> None:
    """Raise `UserError` if the file is of another version, model or step."""
    if state.get("format") != _FORMAT:
        raise UserError("was written by another version; go on without it", file=file)
    flat_buffers, held = engine.flat_buffers, state["engine"]
    if held["tensors"] != flat_buffers.tensors:
        raise UserError("is of another model or memory format; name the folder of this one's", file=file)
    same = (abs(a - b) <= _SAME_WEIGHTS * abs(b) for a, b in zip(_sums(engine), state["weights"], strict=True))
    if held["round"] is None and not all(same):
        raise UserError("is of other weights; load the model's own checkpoint of that step first", file=file)


@torch.no_grad()
def _sums(engine: StepEngine) -> list[float]:
    """Return what tells one step's weights from another's: sums of their magnitudes and of their squares."""
    weights = [parameter.double() for parameter in engine.flat_buffers.parameters]
    return [sum(float(each.abs().sum()) for each in weights), sum(float(each.square().sum()) for each in weights)]
