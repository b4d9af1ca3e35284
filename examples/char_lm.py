"""A small GPT that learns to write Python, byte by byte, from the text of Python's own standard library.

Nothing is downloaded: the text is read from where this Python keeps its library, and a tenth of the files are held
out. There are two of this script: char_lm_plain.py trains in one process, and char_lm.py is the same but for the four
lines with which Trimtab is adopted (``diff char_lm_plain.py char_lm.py`` shows them)::

    python examples/char_lm_plain.py
    trimtab run examples/char_lm.yaml --network examples/networks/changing.yaml
"""

import argparse
import random
import sysconfig
import time
from pathlib import Path

import torch
import trimtab
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

NUM_BYTES = 256


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a text, one after the other: the bytes, and for each the byte that follows it."""

    def __init__(self, text: bytes, context: int) -> None:
        self.bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.context = context

    def __len__(self) -> int:
        return (len(self.bytes) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.context
        window = self.bytes[start : start + self.context + 1]
        return window[:-1], window[1:]


def read_library(seed: int, num_bytes: int) -> tuple[bytes, bytes]:
    """``num_bytes`` of the standard library to train on, and a tenth of that held out, in a seeded order of files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(library.glob("*.py")) + sorted(library.glob("[a-z]*/*.py"))
    files = [file for file in files if file.parent.name not in ("site-packages", "dist-packages", "test", "tests")]
    random.Random(seed).shuffle(files)
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for index, file in enumerate(files):
        parts[index % 10 == 0].append(file.read_bytes())
    train, held_out = (b"\n".join(part) for part in parts)
    return train[:num_bytes], held_out[: num_bytes // 10]


class Block(nn.Module):
    """Causal self-attention, then two linear layers, each added to what came in."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """x, and what comes out: float32 [batch, context, width]."""
        batch, context, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(batch, context, 3, self.num_heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, context, width))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Bytes int64 [batch, context] to logits float32 [batch, context, 256]."""

    def __init__(self, context: int, width: int, num_layers: int, num_heads: int) -> None:
        super().__init__()
        self.byte_embedding = nn.Embedding(NUM_BYTES, width)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, NUM_BYTES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the byte that follows each byte."""
        x = self.byte_embedding(inputs) + self.position_embedding[: inputs.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over all positions."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model: nn.Module, held_out: Text, num_windows: int = 256) -> tuple[float, float]:
    """Loss, and the share of bytes guessed right, on the first windows of the held-out text."""
    inputs, targets = (
        torch.stack(part) for part in zip(*(held_out[i] for i in range(min(num_windows, len(held_out)))), strict=True)
    )
    logits = model(inputs)
    return cross_entropy(logits, targets).item(), (logits.argmax(-1) == targets).float().mean().item()


def main() -> None:
    """Train, and say how it goes."""
    parser = argparse.ArgumentParser(description="Train a small GPT on Python's standard library.")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="256 with 4 layers: 3.3 million parameters")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64, help="bytes that a prediction can look back on")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--text-bytes", type=int, default=1_000_000, help="how much of the library to read")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--print-every", type=int, default=20, help="steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_text, held_out_text = read_library(args.seed, args.text_bytes)
    held_out = Text(held_out_text, args.context)
    loader = DataLoader(Text(train_text, args.context), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = GPT(args.context, args.width, args.layers, args.heads)
    print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters, {len(train_text):,} bytes")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    session = trimtab.attach(model, optimizer)

    step, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for inputs, targets in session.batches(loader):
            loss = cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            session.step(loss)
            step += 1
            if step % args.print_every == 0:
                print(f"step {step}: loss {loss.item():.3f} after {time.perf_counter() - began:.1f} s")
        held_out_loss, accuracy = evaluate(model, held_out)
        print(f"epoch {epoch + 1}: held-out loss {held_out_loss:.3f}, {accuracy:.1%} of the bytes guessed right")


if __name__ == "__main__":
    main()
