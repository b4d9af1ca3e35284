"""A text classifier in the manner of accelerate's nlp_example: the Accelerator wraps, accumulates, clips and gathers.

Which module of Python's standard library is a piece of text from?
"""

import argparse

import torch
import trimtab
from accelerate import Accelerator
from accelerate.utils import set_seed
from small_data import text
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PIECE = 48


def pieces():
    parts = [text(train=train) for train in (True, False)]
    parts = [part[: len(part) // PIECE * PIECE].view(-1, PIECE).long() for part in parts]
    inputs = torch.cat(parts)
    labels = torch.cat([torch.full((len(part),), label) for label, part in enumerate(parts)])
    held_out = torch.arange(len(labels)) % 10 == 0
    return (TensorDataset(inputs[chosen], labels[chosen]) for chosen in (~held_out, held_out))


class Classifier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.positions = nn.Parameter(0.02 * torch.randn(PIECE, width))
        self.encoder = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x) + self.positions).mean(dim=1))


def main():
    parser = argparse.ArgumentParser(description="A text classifier")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--num-epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--gradient-accumulation-steps", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--log-interval", type=int, default=10, help="batches")
    args = parser.parse_args()

    accelerator = Accelerator(cpu=args.cpu, gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)
    train_data, eval_data = pieces()
    train_loader = DataLoader(train_data, args.batch_size, shuffle=True, drop_last=True)
    eval_loader = DataLoader(eval_data, 64)
    model = Classifier(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.8)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    trimtab.attach(model, optimizer)

    for epoch in range(args.num_epochs):
        model.train()
        for step, (inputs, labels) in enumerate(train_loader):
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if step % args.log_interval == 0:
                accelerator.print(f"epoch {epoch} batch {step}: loss {loss.item()!r}")
        model.eval()
        hits = []
        for inputs, labels in eval_loader:
            with torch.no_grad():
                predicted = model(inputs).argmax(dim=-1)
            predicted, labels = accelerator.gather_for_metrics((predicted, labels))
            hits.append((predicted == labels).float())
        accelerator.print(f" * epoch {epoch}: accuracy {torch.cat(hits).mean().item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
