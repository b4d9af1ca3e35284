"""What a session costs one rank on a GPU, beside the same training without it: no network, all that is left is ours.

    python benchmarks costs/gpu_step

Medians of rounds in turns. Profiled steps, which wait for the device after each layer, fall into the warm-up.

Needs an NVIDIA GPU and torchvision; takes ten minutes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision.models import resnet50
from trimtab.plan.fusion import cut
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab.transport.rendezvous import process_group
from trimtab.workloads.char_gpt import CharacterGpt

PLANS = (
    "",
    "dense",
    "0.01/all-gather",
    "0.01/all-gather/sparsifier=topk",
    "0.01/artopk-star-ring",
    "0.01/spardl",
    "dense/source=update:steps=8",
)
WARM_UP, ROUNDS, STEPS_A_ROUND = 8, 3, 6
Step = Callable[[], None]


def resnet() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    images = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (128,), device="cuda")
    network = resnet50().cuda().to(memory_format=torch.channels_last)
    return network, lambda network: nn.functional.cross_entropy(network(images), labels)


def gpt() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    windows = torch.randint(256, (32, 513), device="cuda")

    def loss(network: nn.Module) -> Tensor:
        return nn.functional.cross_entropy(network(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())

    return CharacterGpt(512, 1024, 8).cuda(), loss


def step_of(plan: str, network: nn.Module, loss: Callable[[nn.Module], Tensor], group: Group) -> Step:
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    sizes = [parameter.numel() for parameter in reversed(list(network.parameters()))]
    session = None
    if plan:
        cuts = cut(Plan.parse(plan), sizes)
        session = Session(network, optimizer, group=group, plan=cuts, recorder=Recorder(None))

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            value = loss(network)
        value.backward()
        if session is None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        else:
            session.step()

    return step


def main() -> None:
    store = f"file://{tempfile.mkdtemp()}/store"
    process_group.initialize("nccl", 0, 1, 60, init_method=store)
    group = Group.connect(deadline=60)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for make in (resnet, gpt):
        steps: dict[str, Step] = {}
        for plan in PLANS:
            torch.manual_seed(0)
            network, loss = make()
            num_elements = sum(parameter.numel() for parameter in network.parameters())
            steps[plan] = step_of(plan, network, loss, group)
            for _ in range(WARM_UP):
                steps[plan]()
        times: dict[str, list[float]] = {plan: [] for plan in PLANS}
        for _ in range(ROUNDS):
            for plan, step in steps.items():
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(STEPS_A_ROUND):
                    step()
                torch.cuda.synchronize()
                times[plan].append((time.perf_counter() - began) / STEPS_A_ROUND)
        alone = statistics.median(times[""])
        print(f"{make.__name__}, {num_elements / 1e6:.1f}M elements, alone {alone * 1e3:.1f} ms a step")
        for plan in PLANS[1:]:
            taken = statistics.median(times[plan])
            print(f"  {plan:<40}{taken * 1e3:>8.1f} ms{(taken - alone) * 1e3:>+8.1f}{taken / alone:>7.2f}x")


if __name__ == "__main__":
    main()
