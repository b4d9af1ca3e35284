"""A script for DDP, with one line more, its hook.

``--raise=RANK``: that rank ends with an exception at step 10. ``--width=N``: of the layers, 64 by default.
"""

import sys

import torch
import torch.distributed as dist
import trimtab
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    width = next((int(word.split("=")[1]) for word in sys.argv if word.startswith("--width=")), 64)
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))
    ddp_model = DistributedDataParallel(model, bucket_cap_mb=0.01)
    ddp_model.register_comm_hook(None, trimtab.hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(1 + rank)
    for step in range(30):
        optimizer.zero_grad()
        x = torch.randn(32, 16)
        nn.functional.mse_loss(ddp_model(x), x.sum(dim=1, keepdim=True)).backward()
        optimizer.step()
        if step == 10 and f"--raise={rank}" in sys.argv:
            raise RuntimeError("as it was told to")
    print(f"ends with {sum(float(p.detach().sum()) for p in model.parameters())!r}.", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
