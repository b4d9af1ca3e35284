"""Runs one script of examples/gallery; its rank 1 is killed once, after a checkpoint was written.

``python killed_script.py OUT NAME LINES``: LINES is JSON, pairs of what stands in the script and what replaces it.
If ``OUT/mark`` exists nobody is killed. Each rank writes the hash of its weights to OUT/rank-R.json.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

import torch
import trimtab
from torch.optim.optimizer import register_optimizer_step_post_hook

OUT, NAME, LINES = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
ARGUMENTS = {
    "mnist": ["--epochs=1", "--batch-size=8", "--log-interval=1"],
    "dcgan": ["--niter=1", "--batch-size=8", "--ngf=4", "--ndf=4", "--log-interval=1"],
    "imagenet": ["--epochs=2", "--batch-size=16", "--width=8", "--print-freq=1"],
    "nlp_example": ["--cpu", "--num-epochs=2", "--batch-size=8", "--width=32", "--log-interval=1"],
    "nanogpt": ["--max-iters=12", "--n-embd=16", "--n-layer=1", "--batch-size=4", "--warmup-iters=1"],
}
RANK, MARK = int(os.environ["RANK"]), OUT / "mark"
models: list[torch.nn.Module] = []
own_attach = trimtab.attach


def attach(model: torch.nn.Module, *arguments: Any, **options: Any) -> trimtab.Session:
    models.append(model)
    return own_attach(model, *arguments, **options)


def after_step(*_: Any) -> None:
    """Kill this process once there is something to go on from."""
    if RANK == 1 and not MARK.exists() and any((OUT / "checkpoints").glob("*/manifest.json")):
        MARK.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Digits:
    """Stands for scikit-learn's data set, so that no rank spends seconds on importing it."""

    @staticmethod
    def load_digits(return_X_y: bool) -> Any:
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(17, (400, 64), generator=generator).double().numpy()
        return images, torch.randint(10, (400,), generator=generator).numpy()


def main() -> None:
    torch.set_num_threads(1)
    sys.path.insert(0, str(GALLERY))
    stand_in = types.ModuleType("sklearn.datasets")
    stand_in.load_digits = Digits.load_digits  # type: ignore[attr-defined]
    sys.modules["sklearn.datasets"] = stand_in
    register_optimizer_step_post_hook(after_step)
    trimtab.attach = attach
    file = GALLERY / f"{NAME}.py"
    text = file.read_text()
    for old, new in LINES:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    sys.argv = [str(file), *ARGUMENTS[NAME]]
    exec(compile(text, str(file), "exec"), {"__name__": "__main__"})
    weights = [parameter.detach().numpy().tobytes() for model in models for parameter in model.parameters()]
    (OUT / f"rank-{RANK}.json").write_text(json.dumps([hashlib.sha256(each).hexdigest() for each in weights]))


if __name__ == "__main__":
    main()
