"""A tiny training script of one's own, for any plan: twelve steps, and on until all schemes named to it run."""

import sys
import time

import torch
import trimtab
from torch import nn


class Slow(torch.autograd.Function):
    """Passes its input on. Its backward takes long: what comes after it is complete long before what comes before."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.03)
        return grad


class SlowBackward(nn.Module):
    def forward(self, x):
        return Slow.apply(x)


torch.manual_seed(0)
torch.set_num_threads(1)
# Most values are complete before the slow module's backward: sent in buffers of their own, they cross meanwhile.
model = nn.Sequential(nn.Linear(64, 64), SlowBackward(), nn.ReLU(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8))
session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
step, was_chosen = 0, False
while step < 12 or not was_chosen:  # where a busy machine makes steps slow, a guard leaves the plan again
    was_chosen = was_chosen or all(scheme in session.plan.name for scheme in sys.argv[1:])
    loss = model(torch.randn(16, 64)).square().mean()
    loss.backward()
    session.step(loss)
    step += 1
session.close()
print("plan", session.plan.name, "weights", float(sum(p.detach().double().sum() for p in model.parameters())))
