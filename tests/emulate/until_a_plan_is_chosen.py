"""Trains a small model until a plan other than dense has been chosen; fails where none is after some steps."""

import sys

import torch
import trimtab

MOST_STEPS = 10

model = torch.nn.Linear(1000, 1000)
session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
while session.plan.is_dense and session.steps < MOST_STEPS:
    loss = model(torch.randn(4, 1000)).square().mean()
    loss.backward()
    session.step(loss)
is_dense = session.plan.is_dense
session.close()
sys.exit(f"no plan was chosen in {MOST_STEPS} steps" if is_dense else 0)
