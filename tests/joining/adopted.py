"""A script with a loop of its own, adopted; each argument ``NAME=VALUE`` goes to `trimtab.attach`.

``--raise=RANK``: that rank ends with an exception after ten steps.
"""

import sys

import torch
import trimtab
from torch import nn


def main() -> None:
    options = dict(word.split("=", 1) for word in sys.argv[1:] if word[0] != "-")
    width = int(options.pop("width", "64"))
    torch.manual_seed(0)
    inputs = torch.randn(4096, 16)
    targets = (inputs.sum(dim=1) > 0).long()
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = trimtab.attach(model, optimizer, **options)
    print(f"rank {session.rank} of {session.num_ranks}", flush=True)
    for step, (x, y) in enumerate(
        session.batches(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=16))
    ):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        session.step(loss)
        if step == 10 and f"--raise={session.rank}" in sys.argv:
            raise RuntimeError("as it was told to")
    total = sum(float(p.detach().sum()) for p in model.parameters())
    print(f"rank {session.rank} ends with {session.plan.name} and {total!r}.", flush=True)


if __name__ == "__main__":
    main()
