"""A tiny training script of one's own, for any plan: twelve steps, and on until a collective named to it runs."""

import sys

import torch
import trimtab
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 8))
session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
awaited = " ".join(sys.argv[1:])
step = 0
while step < 12 or awaited not in session.plan.name:
    loss = model(torch.randn(16, 64)).square().mean()
    loss.backward()
    session.step(loss)
    step += 1
session.close()
print("plan", session.plan.name, "weights", float(sum(p.detach().double().sum() for p in model.parameters())))
