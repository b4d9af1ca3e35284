"""CUDA's streams and events as a model: what has run before what, by the clocks that each stream has seen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
import torch

DEVICE = torch.device("cuda", 0)


class FakeEvent:
    """Complete at once; its time is the number of the stream's pieces of work so far, in seconds."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.seen: dict[FakeStream, int] = {}
        self.timing = enable_timing
        self.is_waited_for = False

    def record(self, stream: FakeStream) -> None:
        self.seen = dict(stream.seen)
        self.at = stream.seen[stream]

    def synchronize(self) -> None:
        self.is_waited_for = True

    def elapsed_time(self, later: FakeEvent) -> float:
        assert self.timing
        assert later.timing
        return 1e3 * (later.at - self.at)


class FakeStream:
    """A queue of work; knows how much of each other stream's work is done before what comes next here."""

    def __init__(self, device: torch.device = DEVICE) -> None:
        assert device == DEVICE
        self.seen: dict[FakeStream, int] = {self: 0}

    def launch(self) -> tuple[FakeStream, int]:
        """One more piece of work; its name."""
        self.seen[self] += 1
        return self, self.seen[self]

    def comes_after(self, work: tuple[FakeStream, int]) -> bool:
        """Whether what is launched now begins when ``work`` is done."""
        stream, number = work
        return self.seen.get(stream, 0) >= number

    def record_event(self) -> FakeEvent:
        event = FakeEvent()
        event.record(self)
        return event

    def wait_event(self, event: FakeEvent) -> None:
        for stream, number in event.seen.items():
            self.seen[stream] = max(self.seen.get(stream, 0), number)

    def wait_stream(self, stream: FakeStream) -> None:
        self.wait_event(stream.record_event())


class FakeCuda:
    """What of `torch.cuda` the code under test calls."""

    def __init__(self) -> None:
        self.default = FakeStream()
        self._thread = threading.local()
        self.devices_by_thread: dict[str, torch.device] = {}
        self.recorded: list[tuple[torch.Tensor, FakeStream]] = []
        self.of_the_cpu: list[torch.Tensor] = []
        """All other tensors count as the GPU's."""

    def current_stream(self, device: torch.device = DEVICE) -> FakeStream:
        assert device == DEVICE
        return getattr(self._thread, "stream", self.default)

    @contextlib.contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before = self.current_stream()
        self._thread.stream = stream
        yield
        self._thread.stream = before

    def set_device(self, device: torch.device) -> None:
        self.devices_by_thread[threading.current_thread().name] = device

    def has(self, tensor: torch.Tensor) -> bool:
        return not any(known is tensor for known in self.of_the_cpu)

    def record(self, tensor: torch.Tensor, stream: FakeStream) -> None:
        if not self.has(tensor):
            raise NotImplementedError("Could not run 'aten::record_stream' with arguments from the 'CPU' backend")
        self.recorded.append((tensor, stream))

    def is_recorded(self, tensor: torch.Tensor, stream: FakeStream) -> bool:
        return any(known is tensor and other is stream for known, other in self.recorded)


def install(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Put the model in the place of `torch.cuda`'s streams."""
    fake = FakeCuda()
    for name in ("current_stream", "stream", "set_device"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: fake.record(tensor, stream), raising=False
    )
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(fake.has), raising=False)
    return fake
