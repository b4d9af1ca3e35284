"""A residual network on images, in the manner of pytorch/examples' imagenet: a loop for DistributedDataParallel."""

import argparse
import time

import torch
import torch.distributed as dist
import trimtab
from small_data import digits
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    """Two convolutions beside the identity, or beside a projection where the shape changes."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x):
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(out + self.shortcut(x))


def resnet(width, num_classes=10):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, num_classes),
    )


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    def all_reduce(self, device):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64, device=device)
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / self.count


def accuracy(output, target, topk):
    _, predicted = output.topk(max(topk), dim=1)
    hits = predicted == target[:, None]
    return [100.0 * hits[:, :k].any(dim=1).float().mean().item() for k in topk]


def train(loader, model, criterion, optimizer, epoch, device, args):
    model.train()
    began = time.perf_counter()
    for i, (images, target) in enumerate(loader):
        images, target = images.to(device), target.to(device)
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0 and dist.get_rank() == 0:
            print(f"Epoch: [{epoch}][{i}/{len(loader)}]\tLoss {loss.item()!r}\tTime {time.perf_counter() - began:.1f}")


@torch.no_grad()
def validate(loader, model, criterion, device):
    model.eval()
    losses, top1, top5 = AverageMeter(), AverageMeter(), AverageMeter()
    for images, target in loader:
        images, target = images.to(device), target.to(device)
        output = model(images)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(criterion(output, target).item(), len(images))
        top1.update(acc1, len(images))
        top5.update(acc5, len(images))
    for meter in (losses, top1, top5):
        meter.all_reduce(device)
    if dist.get_rank() == 0:
        print(f" * Loss {losses.avg:.4f} Acc@1 {top1.avg:.3f} Acc@5 {top5.avg:.3f}")


def main():
    parser = argparse.ArgumentParser(description="A residual network")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--print-freq", type=int, default=5, help="steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(args.seed)
    device = torch.device("cuda", dist.get_node_local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    model = resnet(args.width).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    trimtab.attach(model, optimizer)

    train_dataset, val_dataset = digits(train=True, size=16), digits(train=False, size=16)
    train_sampler = DistributedSampler(train_dataset)
    train_loader = DataLoader(train_dataset, args.batch_size, sampler=train_sampler)
    val_loader = DataLoader(val_dataset, args.batch_size, sampler=DistributedSampler(val_dataset, shuffle=False))
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, device, args)
        validate(val_loader, model, criterion, device)
        scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
