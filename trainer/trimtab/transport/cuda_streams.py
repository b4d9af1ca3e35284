"""The rules by which CUDA streams share work and memory, as torch's notes on CUDA semantics state them.

Work on two streams runs in any order, unless one waits for an event that was recorded on the other. Memory may be used
again as soon as the stream it was allocated on has come past its release, unless other streams that use it have been
recorded on it (docs/adr/0008-gpu-transport.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TypeVar

import torch
from torch import Tensor

from trimtab.kernels import ChunkedTensor

T = TypeVar("T")


class StreamFuture(Future[T]):
    """The result of a job that gave work to a stream; the work may still be under way.

    `result` makes the caller's current stream wait for that work, so that the caller may use the tensors in it.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._ended: torch.cuda.Event | None = None

    def record(self, stream: torch.cuda.Stream) -> None:
        """Mark the end of the result: all work that ``stream`` has been given so far."""
        self._ended = stream.record_event()

    def result(self, timeout: float | None = None) -> T:
        """See `Future.result`; waits for the job, not for the device."""
        value = super().result(timeout)
        stream = torch.cuda.current_stream(self._device)
        assert self._ended is not None, "a job's end is recorded before its result is set"
        stream.wait_event(self._ended)
        record_use(value, stream)
        return value


class StreamChain:
    """Work that comes on whatever stream is current, one piece after another, and is to be waited for as one.

    Each piece's stream waits for the stream of the piece before, so a wait for the last waits for all.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last: torch.cuda.Stream | None = None

    def join(self) -> None:
        """Put the next piece on the thread's current stream; do nothing on a device without streams."""
        if self._device.type != "cuda":
            return
        stream = torch.cuda.current_stream(self._device)
        if self._last is not None and self._last != stream:
            stream.wait_stream(self._last)
        self._last = stream


def record_use(used: object, stream: torch.cuda.Stream) -> None:
    """Keep the memory of all tensors in ``used`` that are on a GPU until ``stream`` has come past its present end."""
    for tensor in tensors_in(used):
        if tensor.is_cuda:  # a vote, for one, is read on the CPU
            tensor.record_stream(stream)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield every tensor in ``value``: a tensor, or dataclasses, lists, tuples and dictionaries that hold some."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, ChunkedTensor):
        yield from value.pieces
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
