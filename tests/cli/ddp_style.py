"""A script as one finds them, for DistributedDataParallel; `test_adoption` changes one line of it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(256, 16)
    y = (x.sum(dim=1) > 0).long()
    sampler = DistributedSampler(TensorDataset(x, y), seed=7)
    loader = DataLoader(sampler.dataset, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    model = DistributedDataParallel(model)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, (inputs, targets) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if int(os.environ["RANK"]) == 0:
                print(f"epoch {epoch} step {step} loss {loss.item()!r} norm {norm.item()!r}", flush=True)
        scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
