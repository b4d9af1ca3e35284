"""What scripts of these tests have in common: batches, a session in which two trials are asked for, a step."""

from __future__ import annotations

from typing import Any

import torch
from kit.training.random_training import make_session, network
from kit.training.scripted_control import Script
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.control.messages import TryPlans
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.session.session import Session

CANDIDATES = [Plan.parse("0.3/all-gather", FusionPlan((0, 68))), Plan.parse("dense", FusionPlan((0, 68)))]
TRIALS = TryPlans(tuple(CANDIDATES), 4)
STEPS = 16


class Named(TensorDataset):
    """Batches that scripts take to pieces: dictionaries of tensors."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return {"x": x, "labels": y}


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, 8, generator=generator)
    return DataLoader(Named(x, torch.randint(0, 4, (400,), generator=generator)), batch_size=8)


def begin(rank: int, trials: bool) -> tuple[Session, nn.Module, Any, Script | None]:
    model = network()
    messages = {4: TRIALS, 9: TRIALS} if trials else {}
    script = Script(messages) if rank == 0 else None
    session, optimizer, _ = make_session(Plan.parse("0.1/all-gather"), model, control_client=script)
    torch.manual_seed(rank)
    return session, model, optimizer, script


def weights_of(model: nn.Module) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in model.state_dict().values()])


def step(session: Session, model: nn.Module, batch: Any) -> None:
    labels = batch.pop("labels")
    batch["x"].sub_(0.5).div_(2.0)  # in place, as normalising does
    nn.functional.cross_entropy(model(batch["x"]), labels).backward()
    session.step()
