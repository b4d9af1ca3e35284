"""A small real training whose every rank leaves its whole state at the end, to be compared between runs.

It goes on until trials of several candidates have run and plans were adopted, and some steps more, up to a step of a
plan that leaves something in the residual. ``--like RUN`` takes as many steps as the run in that directory did, adopts
the same plans at the same steps, and tries nothing.
``--die-rank R`` lets one rank end itself in the middle of training, with exit code 3.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trimtab
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.control.messages import AdoptPlan
from trimtab.engine.gradients.flat_buffers import LEND_FROM
from trimtab.plan.plan import Plan
from trimtab.session import attach as attachment
from trimtab.session.session import Session
from trimtab.sparsifiers.near_k import EXACT_UP_TO

#: Candidates that must have been tried, plans that must have been trained with, and training steps after that, before
#: the run may end.
CANDIDATES, PLANS, STEPS_AFTER = 3, 2, 15


class Augmented(TensorDataset):
    """Draws from every global generator whenever a sample is read."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x + torch.randn(x.shape) * 0.1 + float(np.random.rand()) + random.random(), y


def network() -> nn.Module:
    """Dropout and batch statistics, and tensors of every size that a step treats differently."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Dropout(0.2), nn.Linear(400, 370), nn.ReLU(),
        nn.Linear(370, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    assert LEND_FROM <= 400 * 370
    assert EXACT_UP_TO < 370 * 128 < LEND_FROM
    return model


class AsWritten:
    """Stands where rank 0's `ControlClient` stands, and repeats what another run's did, but for its trials."""

    view = None
    can_run_trials = False
    offers_rounds = False

    def __init__(self, run: Path) -> None:
        steps = [line for line in lines_of(run / "metrics.jsonl") if not line["trial"]]
        adopted = [line["adopted"] for line in lines_of(run / "decisions.jsonl") if line["record"] == "decision"]
        plans = {plan["version"]: Plan.from_json({k: v for k, v in plan.items() if k != "name"}) for plan in adopted}
        self._adoptions = {
            step["step"]: AdoptPlan(plans[step["plan_version"]])
            for before, step in zip([{"plan_version": 0}, *steps], steps, strict=False)
            if step["plan_version"] != before["plan_version"]
        }
        self._next_step, self._taken = 0, 0

    def start(self, say: Any, patience: float) -> None: ...

    @property
    def has_message(self) -> bool:
        return self.poll() is not None

    def poll(self) -> AdoptPlan | None:
        return self._adoptions.get(self._next_step)

    def sent(self) -> None:
        self._next_step = max(1, self._next_step)  # the first plan may be agreed on before the first step

    def step(self, before: Any, steps_left: int) -> None:
        self._taken += 1
        self._next_step = self._taken + 1  # announced during one step, adopted before the next

    def profile(self, profile: Any) -> None: ...

    def trials(self, reports: list[Any]) -> None:
        raise AssertionError("nothing was to be tried")

    def close(self) -> None: ...


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def state(session: Session, optimizer: Any, scheduler: Any, model: nn.Module, losses: list[float]) -> dict[str, Any]:
    held = session.debug_state()
    return {
        "steps": session.steps,
        "plan": session.plan.to_json(),
        "losses": losses,
        "weights": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "residual": torch.cat([each.flatten() for each in held.residual.values()]),
        "sparsifiers": held.schemes["sparsifiers"],
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].tolist(),
        "python": random.getstate(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--like", type=Path)
    parser.add_argument("--die-rank", type=int)
    args = parser.parse_args()
    rank, directory = int(os.environ["RANK"]), Path(os.environ["TRIMTAB_RUN_DIR"])
    steps_wanted = None
    if args.like:
        attachment.ControlClient = lambda *_, **__: AsWritten(args.like)
        steps_wanted = torch.load(args.like / f"state-{rank}.pt", weights_only=False)["steps"]
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.9)
    session = trimtab.attach(model, optimizer, scheduler=scheduler, scheduler_interval="step")
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(rank)
    generator = torch.Generator().manual_seed(1)
    data = Augmented(torch.randn(3200, 64, generator=generator), torch.randint(0, 10, (3200,), generator=generator))
    tried: set[str] = set()
    trained_with: set[str] = set()
    losses: list[float] = []
    end = steps_wanted
    while end is None or session.steps < end:
        for x, y in session.batches(DataLoader(data, batch_size=16, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            in_trial, plan = session.in_trial, session.plan.name
            session.step(loss)
            if in_trial:
                tried.add(plan)
            else:
                trained_with.add(plan)
                losses.append(loss.item())
            if rank == args.die_rank and session.steps == 8:
                print("the dog ate my gradient", file=sys.stderr, flush=True)
                os._exit(3)
            has_seen_enough = len(tried) >= CANDIDATES and len(trained_with) >= PLANS
            if end is None and not args.die_rank and has_seen_enough and not session.in_trial:
                end = session.steps + STEPS_AFTER
            if session.steps == end and not session.in_trial:
                if steps_wanted is None and Plan.parse(plan).is_dense:
                    end += STEPS_AFTER  # it ends under a plan that holds something back
                    continue
                break
    torch.save(state(session, optimizer, scheduler, model, losses), directory / f"state-{rank}.pt")
    session.close()


if __name__ == "__main__":
    main()
