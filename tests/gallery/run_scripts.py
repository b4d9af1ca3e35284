"""Runs scripts of examples/gallery in one process, one after the other, and writes down what each printed and trained.

``python run_scripts.py OUT PLAN...``: every script under every plan. ``ddp`` stands for the plain script under
DistributedDataParallel, ``adaptive`` for no plan at all. Each rank writes a line a run to OUT/rank-R.jsonl.

Data are cut short: ``OUT/digits.npz`` stands for scikit-learn's, so that no rank spends seconds on importing it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import io
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
import trimtab
from torch.nn.parallel import DistributedDataParallel
from trimtab.data.batches import Batches
from trimtab.data.sharded_loader import Loaders
from trimtab.session.attach import attach as own_attach

sys.path.insert(0, str(Path(__file__).parents[1]))
from kit.chosen_plan import choose

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
ARGUMENTS = {
    "mnist": ["--epochs=1", "--batch-size=8", "--log-interval=1"],
    "imagenet": ["--epochs=3", "--batch-size=16", "--width=8", "--print-freq=1"],
    "nanogpt": ["--max-iters=20", "--n-embd=32", "--n-layer=1", "--batch-size=4", "--warmup-iters=1"],
    "word_language_model": ["--epochs=1", "--batch-size=32", "--nhid=48", "--log-interval=1"],
    "dcgan": ["--niter=1", "--batch-size=16", "--ngf=4", "--ndf=4", "--lr=0.002", "--log-interval=1"],
    # Under AdamW a 400th of the gradient, which adaptive chooses at 10 Mbit/s, takes several times dense's steps.
    "nlp_example": ["--cpu", "--num-epochs=6", "--batch-size=8", "--width=32", "--log-interval=1"],
}
FIRST_PASS = """
            with netD.no_sync():
                errD_real = criterion(netD(images), real)
                errD_real.backward()"""
#: What makes a plain script for one process one for DistributedDataParallel, in the order of batches that sessions use.
UNDER_DDP = {
    "mnist": [
        ("= Net().to(device)", "= DistributedDataParallel(Net().to(device))"),
        ("        train(args, model, device, train_loader", "        train(args, model, device, share(train_loader)"),
    ],
    "word_language_model": [
        ("    lr, best_val", "    model, bare = DistributedDataParallel(model), model\n    lr, best_val"),
        (
            "    for epoch in",
            "    model.init_hidden, train_data = bare.init_hidden, train_data[:, rank::size]\n    for epoch in",
        ),
    ],
    "dcgan": [
        ("    optimizerD =", "    netD, netG = map(DistributedDataParallel, (netD, netG))\n    optimizerD ="),
        ("enumerate(dataloader)", "enumerate(share(dataloader))"),
        ("            errD_real = criterion(netD(images), real)\n            errD_real.backward()", FIRST_PASS),
    ],
}
NUM_BYTES = 17_000
OUT = Path(sys.argv[1]).resolve()
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def share(loader: Any) -> Any:
    """This rank's batches of the first epoch, as a session of a job of defaults gives them."""
    sharded = Loaders(RANK, SIZE, 0).shard(loader)
    return Batches(lambda: (each for each in sharded.epoch(0)), lambda: sharded.num_batches, loader)


def run(name: str, plan: str) -> dict[str, Any]:
    file = GALLERY / (f"{name}_plain.py" if plan == "ddp" else f"{name}.py")
    text = file.read_text()
    models: list[torch.nn.Module] = []
    sessions = []

    def attach(model: torch.nn.Module, *arguments: Any, **options: Any) -> trimtab.Session:
        sessions.append(own_attach(model, *arguments, **options))
        models.append(model)
        return sessions[-1]

    class Wrapper(DistributedDataParallel):
        def __init__(self, model: torch.nn.Module, **options: Any) -> None:
            super().__init__(model, **options)
            models.append(model)

    def form(backend: str, **_: Any) -> None:
        """A process group whose ranks meet at a file: torchrun's store does not tell one group after another apart."""
        own_form(backend, init_method=f"file://{OUT}/{name}-{plan.replace('/', '-')}", rank=RANK, world_size=SIZE)

    own_form, dist.init_process_group = dist.init_process_group, form
    if plan == "ddp":
        torch.nn.parallel.DistributedDataParallel = Wrapper
        for old, new in UNDER_DDP.get(name, []):
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        if name in UNDER_DDP:
            dist.init_process_group("gloo")
    choose(plan)
    os.environ["TRIMTAB_RUN_DIR"] = f"runs/{name}-{plan.replace('/', '-')}"
    trimtab.attach = attach
    sys.argv = [str(file), *ARGUMENTS[name]]
    variables = {
        "__name__": "__main__",
        "DistributedDataParallel": Wrapper,
        "share": share,
        "rank": RANK,
        "size": SIZE,
    }
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(text, str(file), "exec"), variables)
    finally:
        trimtab.attach, dist.init_process_group = own_attach, own_form
        torch.nn.parallel.DistributedDataParallel = DistributedDataParallel
        for session in sessions:
            session.close()
        if dist.is_initialized():
            dist.destroy_process_group()
        if (state := sys.modules.get("accelerate.state")) is not None:
            state.AcceleratorState._reset_state(reset_partial_state=True)
            state.GradientState._reset_state()
    lines = [line for line in printed.getvalue().splitlines() if not line.startswith(" *")]
    return {
        "script": name,
        "plan": plan,
        "losses": [float(each) for line in lines for each in re.findall(r"(?i:loss)\w*:? ([-\d.e]+)", line)],
        "weights": [hashlib.sha256(p.detach().numpy().tobytes()).hexdigest() for m in models for p in m.parameters()],
        "plans": [session.plan.name for session in sessions],
    }


def cut_data() -> None:
    """Fewer samples than the scripts would train on."""
    digits = np.load(OUT / "digits.npz")
    load = SimpleNamespace(load_digits=lambda return_X_y: (digits["images"], digits["classes"]))
    sys.modules["sklearn.datasets"] = cast(ModuleType, load)
    import small_data

    own = small_data.text
    small_data.text = lambda *, train: own(train=train)[:NUM_BYTES]


def main() -> None:
    faulthandler.dump_traceback_later(420, exit=True)  # a hang says where
    torch.set_num_threads(1)
    sys.path.insert(0, str(GALLERY))
    cut_data()
    plans = sys.argv[2:]
    with (OUT / f"rank-{RANK}.jsonl").open("w") as file:
        for plan in plans:
            for name in ARGUMENTS:
                print(json.dumps(run(name, plan)), file=file, flush=True)


if __name__ == "__main__":
    main()
