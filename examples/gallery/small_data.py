"""Data that need no download, in the shapes that the scripts of this folder load: they stand where yours would."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset


def digits(*, train: bool, size: int = 8) -> TensorDataset:
    """Scikit-learn's handwritten digits: float32 [samples, 1, size, size] in [-1, 1], and their classes, int64.

    Every tenth image is held out of the training set.
    """
    images, classes = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    chosen = (torch.arange(len(pixels)) % 10 != 0) == train
    pixels = nn.functional.interpolate(pixels[chosen], size=(size, size), mode="bilinear")
    return TensorDataset(pixels, torch.tensor(classes)[chosen])


def text(*, train: bool) -> Tensor:
    """The bytes of a module of Python's standard library, uint8 [bytes]; of another one where it is held out."""
    source = Path(argparse.__file__ if train else statistics.__file__).read_bytes()
    return torch.frombuffer(bytearray(source[:60_000]), dtype=torch.uint8)
