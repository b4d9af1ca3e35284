"""A small GPT on bytes, in the manner of nanoGPT's train.py: a loop for one process or DistributedDataParallel."""

import argparse
import math
import os
from contextlib import nullcontext

import torch
import torch.nn.functional as F
import trimtab
from small_data import text
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser(description="A small GPT")
parser.add_argument("--max-iters", type=int, default=60)
parser.add_argument("--eval-interval", type=int, default=20)
parser.add_argument("--eval-iters", type=int, default=4)
parser.add_argument("--gradient-accumulation-steps", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--block-size", type=int, default=32)
parser.add_argument("--n-layer", type=int, default=2)
parser.add_argument("--n-embd", type=int, default=64)
parser.add_argument("--learning-rate", type=float, default=3e-3)
parser.add_argument("--warmup-iters", type=int, default=5)
parser.add_argument("--grad-clip", type=float, default=1.0)
parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
args = parser.parse_args()

ddp = int(os.environ.get("RANK", -1)) != -1  # is this a ddp run?
gradient_accumulation_steps = args.gradient_accumulation_steps
if ddp:
    init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    master_process = int(os.environ["RANK"]) == 0
    seed_offset = int(os.environ["RANK"])
    gradient_accumulation_steps //= int(os.environ["WORLD_SIZE"])
    device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
else:
    master_process, seed_offset = True, 0
    device = "cuda" if torch.cuda.is_available() else "cpu"
device_type = "cuda" if "cuda" in device else "cpu"
torch.manual_seed(1337 + seed_offset)
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[args.dtype]
ctx = nullcontext() if args.dtype == "float32" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
data = {"train": text(train=True), "val": text(train=False)}


def get_batch(split):
    ix = torch.randint(len(data[split]) - args.block_size, (args.batch_size,)).tolist()
    x = torch.stack([data[split][i : i + args.block_size].long() for i in ix])
    y = torch.stack([data[split][i + 1 : i + 1 + args.block_size].long() for i in ix])
    return x.to(device), y.to(device)


class Block(nn.Module):
    def __init__(self, n_embd, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.n_head, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, block_size, n_layer, n_embd, vocab_size=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.Sequential(*(Block(n_embd) for _ in range(n_layer)))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight  # tied
        nn.init.normal_(self.lm_head.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        logits = self.lm_head(self.ln_f(self.h(x)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = GPT(args.block_size, args.n_layer, args.n_embd).to(device)
scaler = torch.amp.GradScaler(device_type, enabled=(args.dtype == "float16"))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
if ddp:
    model = DDP(model)
    trimtab.attach(model, optimizer, scaler=scaler)
raw_model = model.module if ddp else model


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(args.eval_iters)
        for k in range(args.eval_iters):
            _, loss = raw_model(*get_batch(split))
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def get_lr(it):
    if it < args.warmup_iters:
        return args.learning_rate * (it + 1) / (args.warmup_iters + 1)
    done = (it - args.warmup_iters) / (args.max_iters - args.warmup_iters)
    return args.learning_rate * (0.1 + 0.45 * (1.0 + math.cos(math.pi * done)))


X, Y = get_batch("train")
for iter_num in range(args.max_iters):
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    if iter_num % args.eval_interval == 0 and master_process:
        estimate = estimate_loss()
        print(f"step {iter_num}: train loss {estimate['train']:.4f}, val loss {estimate['val']:.4f}")
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    if args.grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if master_process:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps!r}")
if ddp:
    destroy_process_group()
