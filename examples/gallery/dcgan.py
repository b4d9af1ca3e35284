"""A generator and a discriminator that train by turns, in the manner of pytorch/examples' dcgan."""

import argparse

import torch
import trimtab
from small_data import digits
from torch import nn, optim
from torch.utils.data import DataLoader


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, 2 * ngf, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * ngf, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, 2 * ndf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * ndf),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * ndf, 1, 4, 1, 0, bias=False),
        )

    def forward(self, images):
        return self.main(images).flatten()


def weights_init(m):
    if isinstance(m, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)


def main():
    parser = argparse.ArgumentParser(description="Made-up digits")
    parser.add_argument("--niter", type=int, default=4, help="epochs")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--nz", type=int, default=16, help="random numbers that an image is made of")
    parser.add_argument("--ngf", type=int, default=16)
    parser.add_argument("--ndf", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--beta1", type=float, default=0.5)
    parser.add_argument("--log-interval", type=int, default=5, help="steps")
    parser.add_argument("--manual-seed", type=int, default=0)
    opt = parser.parse_args()
    torch.manual_seed(opt.manual_seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataloader = DataLoader(digits(train=True, size=16), batch_size=opt.batch_size, shuffle=True, drop_last=True)
    netG = Generator(opt.nz, opt.ngf).to(device)
    netD = Discriminator(opt.ndf).to(device)
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
    session = trimtab.attach(nn.ModuleList([netD, netG]), [optimizerD, optimizerG], alternating_optimizers=True)
    for epoch in range(opt.niter):
        for i, (images, _) in enumerate(session.batches(dataloader)):
            # The discriminator: all real, then all made up.
            netD.zero_grad()
            images = images.to(device)
            real, fake = (torch.full((len(images),), label, device=device) for label in (1.0, 0.0))
            errD_real = criterion(netD(images), real)
            errD_real.backward()
            made_up = netG(torch.randn(len(images), opt.nz, 1, 1, device=device))
            errD_fake = criterion(netD(made_up.detach()), fake)
            errD_fake.backward()
            optimizerD.step()
            # The generator: what it makes up is to be taken for real.
            netG.zero_grad()
            errG = criterion(netD(made_up), real)
            errG.backward()
            optimizerG.step()
            if i % opt.log_interval == 0:
                errD = errD_real + errD_fake
                print(f"[{epoch}/{opt.niter}][{i}] Loss_D: {errD.item()!r} Loss_G: {errG.item()!r}")


if __name__ == "__main__":
    main()
