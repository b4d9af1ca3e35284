"""A character GPT under AdamW on the text of Python's own standard library, to a held-out loss.

Nothing is downloaded: the text is read from where this Python keeps its library, and a tenth of the files are held out.

    python -m trimtab.workloads.char_gpt --width 96 --layers 2
"""

from __future__ import annotations

import argparse
import os
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trimtab

NUM_BYTES = 256
HELD_OUT_WINDOWS = 96


class CharacterGpt(nn.Module):
    """Bytes int64 [batch, context] to logits float32 [batch, context, 256] of the byte that follows each."""

    def __init__(self, context: int, width: int, num_layers: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(NUM_BYTES, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(num_layers)
        )
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, NUM_BYTES))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits."""
        x = self.bytes(inputs) + self.positions
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        logits: Tensor = self.last(x)
        return logits


def data(context: int, num_bytes: int) -> tuple[TensorDataset, TensorDataset]:
    """Return windows of ``context + 1`` bytes, int64: of ``num_bytes`` to train on, and of other files."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    held = files[::10]
    training = [file for file in files if file not in held]

    def windows(chosen: list[Path], most: int) -> TensorDataset:
        text = b"".join(file.read_bytes() for file in chosen)[:most]
        count = len(text) // (context + 1)
        return TensorDataset(
            torch.frombuffer(bytearray(text), dtype=torch.uint8)[: count * (context + 1)]
            .long()
            .view(count, context + 1)
        )

    return windows(training, num_bytes), windows(held, HELD_OUT_WINDOWS * (context + 1))


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    """Return the mean cross entropy over all positions."""
    logits = model(windows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def main() -> None:
    """Train, reporting the held-out loss every few steps."""
    parser = argparse.ArgumentParser(description="Train a character GPT on Python's standard library.")
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8, help="windows a rank")
    parser.add_argument("--text-bytes", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--evaluate-every", type=int, default=5, help="steps")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRIMTAB_SEED", "0")), help="(default: the job's)"
    )
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train, held_out = data(args.context, args.text_bytes)
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = CharacterGpt(args.context, args.width, args.layers)
    session = trimtab.attach(model, torch.optim.AdamW(model.parameters(), lr=args.learning_rate))
    for _ in session.epochs(args.epochs):
        for (windows,) in session.batches(loader):
            loss = loss_of(model, windows)
            loss.backward()
            session.step(loss)
            if session.rank == 0 and not session.in_trial and session.steps % args.evaluate_every == 0:
                with torch.no_grad():
                    session.report(loss=loss_of(model, held_out.tensors[0]))
    session.close()


if __name__ == "__main__":
    main()
