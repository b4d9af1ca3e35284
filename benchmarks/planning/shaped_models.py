"""Models by the shapes of their tensors, and what each tensor's backward pass would take: no weights, no data.

Backward costs twice the multiply-adds of the forward pass, at the rate at which two cores train ResNet-18 (130 ms a
step at batch 4, 1.8 G multiply-adds an image); tensors without any (biases, norms) cost a pass over their activations.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.plan.plan import Plan
from trimtab.plan.profile import Profile

#: Multiply-adds a second, and activations that a bias or a norm goes through a second.
_RATE, _PASS = 3 * 4 * 1.82e9 / 0.130, 2e9


@dataclass
class Shaped:
    """A model's tensors in forward order: elements and seconds of backward."""

    name: str
    batch: int
    sizes: list[int]
    seconds: list[float]

    @classmethod
    def empty(cls, name, batch):
        return cls(name, batch, [], [])

    def narrowed(self, divisor):
        """The same with so many times fewer elements in each tensor, which take as long."""
        return Shaped(self.name, self.batch, [max(1, size // divisor) for size in self.sizes], self.seconds)

    def with_batch(self, factor):
        """The same with a batch so many times as large, which takes so many times as long."""
        return Shaped(self.name, self.batch * factor, self.sizes, [factor * each for each in self.seconds])

    @property
    def layers(self):
        """Each tensor as a layer to replay, in forward order: sizes, seconds forward and backward."""
        return [([size], seconds / 2, seconds) for size, seconds in zip(self.sizes, self.seconds, strict=True)]

    def add(self, elements, multiply_adds=0.0, activations=0.0):
        """One tensor, by what an input of the batch costs."""
        self.sizes.append(int(elements))
        self.seconds.append(self.batch * (2 * multiply_adds / _RATE + activations / _PASS))

    @property
    def tensor_sizes(self):
        """In backward order."""
        return tuple(reversed(self.sizes))

    @property
    def profile(self):
        """As if a few steps had been profiled."""
        backward = tuple(reversed(self.seconds))
        return Profile(9, 5, Plan(0.01, "all-gather"), sum(backward) / 2, backward, (), (), None, None, None)


def resnet18():
    """ImageNet's: 62 tensors, 11.69 million elements."""
    model = Shaped.empty("ResNet-18", 4)

    def conv(inputs, outputs, kernel, side):
        model.add(inputs * outputs * kernel**2, inputs * outputs * kernel**2 * side**2)
        for _ in range(2):  # the norm's weight and bias
            model.add(outputs, activations=outputs * side**2)

    conv(3, 64, 7, 112)
    inputs = 64
    for outputs, side in ((64, 56), (128, 28), (256, 14), (512, 7)):
        for block in range(2):
            conv(inputs, outputs, 3, side)
            conv(outputs, outputs, 3, side)
            if block == 0 and inputs != outputs:
                conv(inputs, outputs, 1, side)
            inputs = outputs
    model.add(512 * 1000, 512 * 1000)
    model.add(1000, activations=1000)
    return model


def vgg16(side=224, batch=4, width=4096, classes=1000):
    """ImageNet's: 32 tensors, 138 million elements, nine tenths of them in three."""
    model = Shaped.empty("VGG-16", batch)
    inputs, last = 3, side // 32
    for outputs, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            model.add(inputs * outputs * 9, inputs * outputs * 9 * side**2)
            model.add(outputs, activations=outputs * side**2)
            inputs = outputs
        side //= 2
    for inputs, outputs in ((512 * last**2, width), (width, width), (width, classes)):
        model.add(inputs * outputs, inputs * outputs)
        model.add(outputs, activations=outputs)
    return model


def gpt(layers=12, width=768, vocabulary=50257, length=256, batch=1):
    """GPT-2's smallest, sequences of 256: 148 tensors, 124 million elements, the head tied to the embedding."""
    model = Shaped.empty("GPT-2", batch)
    # The gradient of the tied embedding is complete last, when the input's is; the head's part was computed first.
    model.add(vocabulary * width, activations=length * width)
    model.add(1024 * width, activations=length * width)

    def norm():
        for _ in range(2):
            model.add(width, activations=length * width)

    def linear(inputs, outputs):
        model.add(inputs * outputs, length * inputs * outputs)
        model.add(outputs, activations=length * outputs)

    for _ in range(layers):
        norm()
        linear(width, 3 * width)
        linear(width, width)
        norm()
        linear(width, 4 * width)
        linear(4 * width, width)
    norm()
    head = model.batch * 2 * length * width * vocabulary / _RATE
    model.seconds[-1] += head  # before the last norm's gradient, the head's product is computed
    return model


MODELS = (resnet18, vgg16, gpt)
