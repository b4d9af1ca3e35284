"""A training script one of whose ranks takes 0.3 seconds longer to compute every step."""

import argparse
import os
import time

import torch
import trimtab
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--slow-rank", type=int, required=True)
parser.add_argument("--steps", type=int, default=45)
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 8))
session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.01))
for _ in range(args.steps):
    if int(os.environ["RANK"]) == args.slow_rank:
        time.sleep(0.3)
    loss = model(torch.randn(16, 64)).square().mean()
    loss.backward()
    session.step(loss)
session.close()
