"""What `schedules` trains: small models whose ranks draw samples by number, all in one process."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from trimtab.workloads import char_gpt, cnn, digits


class Digits:
    """Three linear layers. DeFT's rule was tuned on these."""

    target, learning_rates = 0.75, (0.03, 0.01, 0.005)

    def __init__(self, seed: int) -> None:
        data, self.held_out = digits.data(seed)
        self.images, self.labels = data.tensors
        self.num_samples = len(self.labels)
        self.network: nn.Module = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def loss(self, samples: Tensor) -> Tensor:
        """Of samples [ranks, batch]."""
        outputs = self.network(self.images[samples.flatten()])
        return nn.functional.cross_entropy(outputs, self.labels[samples.flatten()], label_smoothing=0.1)

    def accuracy(self) -> float:
        """Held out."""
        return digits.evaluate(self.network, self.held_out)[0]


class Cnn(Digits):
    """Four convolutions with batch norm, whose statistics are each rank's own; a quarter of the workload's channels."""

    target, learning_rates = 0.2, (0.03, 0.01, 0.003)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        cnn.CHANNELS = (1, 16, 32, 32, 64)
        self.network = cnn.model()

    def loss(self, samples: Tensor) -> Tensor:
        """Of samples [ranks, batch], the mean over ranks."""
        losses = (nn.functional.cross_entropy(self.network(self.images[each]), self.labels[each]) for each in samples)
        return torch.stack(list(losses)).mean()

    def accuracy(self) -> float:
        """Held out, by the running statistics."""
        accuracy = digits.evaluate(self.network.eval(), self.held_out)[0]
        self.network.train()
        return accuracy


class CharacterGpt:
    """Two layers of width 48 under SGD: 0.08 million parameters, no norm but layer norm, inputs that differ in rate."""

    target, learning_rates = 2.5, (0.3, 0.1, 0.03)

    def __init__(self, seed: int) -> None:
        training, held_out = char_gpt.data(32, 400_000)
        self.windows, self.held_out = training.tensors[0], held_out.tensors[0]
        self.num_samples = len(self.windows)
        self.network = char_gpt.CharacterGpt(32, 48, 2)

    def loss(self, samples: Tensor) -> Tensor:
        """Of samples [ranks, batch]."""
        return char_gpt.loss_of(self.network, self.windows[samples.flatten()])

    def accuracy(self) -> float:
        """Of bytes that were held out."""
        with torch.no_grad():
            guessed = self.network(self.held_out[:, :-1]).argmax(-1)
        return float((guessed == self.held_out[:, 1:]).float().mean())


TASKS = {"digits": Digits, "cnn": Cnn, "gpt": CharacterGpt}
