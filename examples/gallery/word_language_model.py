"""A recurrent language model on bytes, in the manner of pytorch/examples' word_language_model: a loop for one process.

It takes its steps by hand: there is no optimizer.
"""

import argparse
import math

import torch
import trimtab
from small_data import text
from torch import nn

NUM_TOKENS = 256


class RNNModel(nn.Module):
    def __init__(self, emsize, nhid, nlayers, dropout):
        super().__init__()
        self.encoder = nn.Embedding(NUM_TOKENS, emsize)
        self.rnn = nn.LSTM(emsize, nhid, nlayers)
        self.drop = nn.Dropout(dropout)
        self.decoder = nn.Linear(nhid, NUM_TOKENS)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(output)).view(-1, NUM_TOKENS), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return tuple(weight.new_zeros(self.rnn.num_layers, bsz, self.rnn.hidden_size) for _ in range(2))


def batchify(data, bsz):
    """Cut the text into ``bsz`` columns of one length, which are read side by side: [length, bsz]."""
    length = data.size(0) // bsz
    return data[: length * bsz].long().view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


def evaluate(model, data_source, criterion, bptt):
    model.eval()
    total_loss = 0.0
    hidden = model.init_hidden(data_source.size(1))
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, bptt):
            data, targets = get_batch(data_source, i, bptt)
            output, hidden = model(data, hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(data_source) - 1)


def main():
    parser = argparse.ArgumentParser(description="A recurrent language model")
    parser.add_argument("--emsize", type=int, default=48)
    parser.add_argument("--nhid", type=int, default=96)
    parser.add_argument("--nlayers", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5.0)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--bptt", type=int, default=24)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--log-interval", type=int, default=10, help="steps")
    parser.add_argument("--seed", type=int, default=1111)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_data = batchify(text(train=True), args.batch_size).to(device)
    val_data = batchify(text(train=False), args.batch_size).to(device)
    model = RNNModel(args.emsize, args.nhid, args.nlayers, args.dropout).to(device)
    criterion = nn.CrossEntropyLoss()
    session = trimtab.attach(model)
    train_data = train_data[:, session.rank :: session.num_ranks]
    lr, best_val_loss = args.lr, None
    for epoch in range(1, args.epochs + 1):
        model.train()
        hidden = model.init_hidden(train_data.size(1))
        for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
            data, targets = get_batch(train_data, i, args.bptt)
            hidden = tuple(state.detach() for state in hidden)  # truncated backpropagation through time
            model.zero_grad()
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            session.step(loss)
            if batch % args.log_interval == 0:
                print(f"| epoch {epoch} | {batch:4d} batches | lr {lr:.2f} | loss {loss.item()!r}")
        val_loss = evaluate(model, val_data, criterion, args.bptt)
        print(f"| end of epoch {epoch} | valid loss {val_loss:.2f} | valid ppl {math.exp(val_loss):.2f}")
        if best_val_loss is None or val_loss < best_val_loss:
            best_val_loss = val_loss
        else:
            lr /= 4.0


if __name__ == "__main__":
    main()
