"""All that one process needs to go on from a step as if it had never stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trimtab.checkpoint.random_state import RandomState
from trimtab.checkpoint.snapshot import Stateful
from trimtab.data.loops import Loops
from trimtab.data.position import Position
from trimtab.engine import checkpoint as carried_state
from trimtab.engine.local_sgd.buffer_sync import put_back
from trimtab.engine.step_engine import StepEngine
from trimtab.session.announcements import ControlMessages
from trimtab.session.options import SessionOptions
from trimtab.session.step_counter import StepCounter

State = dict[str, Any]


@dataclass(frozen=True)
class JobState:
    """The objects that hold the state; tensors that it returns are theirs, and are to be copied."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    options: SessionOptions
    loops: Loops
    steps: StepCounter
    engine: StepEngine | None
    """None where one process trains alone."""
    control: ControlMessages

    def settle(self) -> None:
        """Have nothing under way; every rank calls it together, between two steps."""
        if self.engine is not None:
            self.engine.settle()
            self.engine.rounds.flush()

    def shared(self) -> State:
        """Return what is the same on every rank, as rank 0 has it."""
        scheduler = self.options.scheduler
        return {
            "model": dict(self.model.state_dict()),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scheduler": None if scheduler is None else scheduler.state_dict(),
            "scale": self.options.scale.state_dict(),
            "position": self.position.to_state(),
            "controller": self.control.state_dict(),
        }

    def own(self) -> State:
        """Return what is this rank's alone."""
        began, generators = self.loops.generators_at_begin, RandomState.capture()
        position = self.position
        has_given = position.batches > 0 or position.drawn > 0
        if began is not None and not has_given:  # the loop begins anew, and draws again
            generators = began
        return {
            "buffers": {name: buffer.detach() for name, buffer in self.model.named_buffers()},
            "extra_state": [each.state_dict() for each in self.options.extra_state],
            "random": generators.to_state(),
            "random_at_loop": began.to_state() if began is not None and has_given else None,
            "engine": None if self.engine is None else carried_state.carried(self.engine),
            "hosts": self._hosts,
        }

    @property
    def _hosts(self) -> list[list[int]] | None:
        return None if self.engine is None else [list(host) for host in self.engine.group.hosts]

    @property
    def position(self) -> Position:
        """Where training is."""
        return self.loops.position(self.steps.num)

    @property
    def is_mid_step(self) -> bool:
        """True if a backward pass has run whose step has not been taken."""
        engine = self.engine
        return engine is not None and (engine.exchanger.is_mid_step or engine.pending_step.has_begun)

    @property
    def rank(self) -> int:
        """Number of this process among them."""
        return 0 if self.engine is None else self.engine.group.rank

    @property
    def num_ranks(self) -> int:
        """Ranks that train together."""
        return 1 if self.engine is None else self.engine.group.size

    def ranks_needed(self, num_before: int) -> list[int]:
        """Return the former ranks whose own part this rank needs; the first is the one that it goes on as."""
        if self.engine is None:
            return [0]
        rank, size = self.engine.group.rank, self.engine.group.size
        needed = carried_state.ranks_needed(rank, size, num_before)
        first = rank % num_before
        return [first, *(each for each in needed if each != first)]

    def misfit(self, shared: State, parts: Mapping[int, State]) -> str:
        """Return why the script cannot take over a checkpoint, without the remedy; empty if it can."""
        shapes = [[len(group["params"]) for group in optimizer.param_groups] for optimizer in self.optimizers]
        num_others = len(self.options.extra_state)
        try:
            kept = [[len(group["params"]) for group in state["param_groups"]] for state in shared["optimizers"]]
            nums_kept = {len(part["extra_state"]) for part in parts.values()}
        except (KeyError, TypeError):
            return "holds checkpoints that no session wrote"
        other = ""
        if kept != shapes:
            other = f"optimizers (parameters by group: {kept}, here {shapes})"
        elif nums_kept != {num_others}:
            other = f"extra_state ({', '.join(map(str, sorted(nums_kept)))} objects, here {num_others})"
        return f"holds checkpoints of other {other}" if other else ""

    @torch.no_grad()
    def restore(self, shared: State, parts: Mapping[int, State], num_before: int) -> bool:
        """Go on from a checkpoint of ``num_before`` ranks; every rank calls it together.

        Args:
            shared: What `shared` returned.
            parts: What `own` returned, by former rank: of `ranks_needed`.
            num_before: Ranks that wrote it.

        Returns:
            Whether every rank goes on as the one that it was, bit for bit.
        """
        own = parts[self.ranks_needed(num_before)[0]]
        self.model.load_state_dict(shared["model"])
        self._restore_buffers(own)
        for optimizer, kept in zip(self.optimizers, shared["optimizers"], strict=True):
            load_optimizer(optimizer, kept)
        if self.options.scheduler is not None and shared["scheduler"] is not None:
            self.options.scheduler.load_state_dict(shared["scheduler"])
        self.options.scale.load_state_dict(shared["scale"])
        for each, kept in zip(self.options.extra_state, own["extra_state"], strict=True):
            _load(each, kept)
        position = Position.from_state(shared["position"])
        is_same = self._go_on(position, own, parts, num_before, shared["controller"], script_knows=False)
        if num_before != self.num_ranks and self.options.on_resize is not None:
            self.options.on_resize(num_before, self.num_ranks)
        return is_same

    @torch.no_grad()
    def restore_session(self, own: State) -> None:
        """Go on from what `own` returned on this rank, and from ``position`` and ``controller`` beside it.

        Model and optimizers are of that step already.
        """
        self._restore_buffers(own)
        position, parts = Position.from_state(own["position"]), {self.rank: own}
        self._go_on(position, own, parts, self.num_ranks, own["controller"], script_knows=True)

    def _restore_buffers(self, own: State) -> None:
        for name, kept in own["buffers"].items():
            part, _, last = name.rpartition(".")
            put_back(self.model.get_submodule(part), last, kept)

    def _go_on(
        self,
        position: Position,
        own: State,
        parts: Mapping[int, State],
        num_before: int,
        controller: State | None,
        *,
        script_knows: bool,
    ) -> bool:
        """Take over what exchanges carried, and go to a position; return what `restore` returns."""
        is_same = num_before == self.num_ranks and own["hosts"] == self._hosts
        if self.engine is not None:
            self._restore_engine(parts, num_before, is_same=is_same, step=position.steps)
            if self.engine.group.rank == 0:
                self.control.load_state_dict(controller, self.engine.plan)
        self.steps.go_to(position.steps)
        began = own["random_at_loop"]
        self.loops.resume(position, None if began is None else RandomState.from_state(began), script_knows=script_knows)
        if is_same:
            RandomState.from_state(own["random"]).restore()
        return is_same

    def _restore_engine(self, parts: Mapping[int, State], num_before: int, *, is_same: bool, step: int) -> None:
        engine = self.engine
        assert engine is not None
        held = {rank: part["engine"] for rank, part in parts.items()}
        if None in held.values():  # one process wrote it, which exchanged nothing
            engine.resume_at(step)
        elif is_same:
            carried_state.resume(engine, held[engine.group.rank])
        else:
            carried_state.take_over(engine, held, num_before)
        engine.exchanger.count_from(step)


def model_fingerprint(model: nn.Module) -> str:
    """Return what tells one model's checkpoints from another's: names, shapes and types of what is saved."""
    told = [[name, list(each.shape), str(each.dtype)] for name, each in model.state_dict().items()]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def load_optimizer(optimizer: torch.optim.Optimizer, kept: State) -> None:
    """Load what `Optimizer.state_dict` returned, each tensor in its own type.

    torch brings state to its parameter's type, so what an optimizer keeps in whole numbers or bfloat16 would change.
    """
    optimizer.load_state_dict(kept)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, state in kept["state"].items():
        live = optimizer.state[parameters[index]]
        for name, value in state.items():
            if isinstance(value, Tensor) and isinstance(live.get(name), Tensor) and live[name].dtype != value.dtype:
                live[name] = value.to(live[name].device)


def _load(target: Stateful | torch.optim.Optimizer, kept: State) -> None:
    if isinstance(target, torch.optim.Optimizer):
        load_optimizer(target, kept)
    else:
        target.load_state_dict(kept)
