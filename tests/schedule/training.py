"""Thirty steps of a small model, and what this rank has at the end of them."""

import torch
import trimtab
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 8))
session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
for _ in range(30):
    loss = model(torch.randn(16, 64)).square().mean()
    loss.backward()
    session.step(loss)
weights = [f"{float(each.double().sum())!r}" for each in model.state_dict().values()]
session.close()
print("weights", *weights, session.plan.to_json()["timetable"])
