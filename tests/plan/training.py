"""Thirty steps of a small model, and what this rank has at the end of them."""

import torch
import trimtab
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
# An exchange takes longer than computing, however busy the machine, so that what links there are have work.
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 8))
session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
for _ in range(30):
    loss = model(torch.randn(4, 64)).square().mean()
    loss.backward()
    session.step(loss)
weights = [f"{float(each.double().sum())!r}" for each in model.state_dict().values()]
session.close()
print("weights", *weights, session.plan.to_json()["timetable"])
