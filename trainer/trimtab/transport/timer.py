"""A lap timer that splits an exchange's time into compression and communication."""

from __future__ import annotations

import warnings
from time import perf_counter
from typing import Literal

import torch


class LapTimer:
    """Adds each lap to one of two sums.

    On a GPU a lap ends when the current stream comes to it: marks are events on that stream, and no stream waits. They
    are read, after a wait for the last of them, when a sum is asked for. A lap begins and ends on one stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._device = device
        self._laps: dict[Literal["compress", "collective"], list[tuple[_Mark, _Mark]]]
        self._laps = {"compress": [], "collective": []}
        self._mark = self._now()

    def resume(self) -> None:
        """Begin a lap; the time since the last one was waiting for other buffers."""
        self._mark = self._now()

    def compressed(self) -> None:
        """End a lap of selecting, packing or unpacking."""
        self._end_lap("compress")

    def communicated(self) -> None:
        """End a lap of sending and waiting."""
        self._end_lap("collective")

    @property
    def compress_seconds(self) -> float:
        """Sum of all laps of compression."""
        return sum((_seconds(*lap) for lap in self._laps["compress"]), 0.0)

    @property
    def collective_seconds(self) -> float:
        """Sum of all laps of communication."""
        return sum((_seconds(*lap) for lap in self._laps["collective"]), 0.0)

    def _end_lap(self, kind: Literal["compress", "collective"]) -> None:
        started, self._mark = self._mark, self._now()
        self._laps[kind].append((started, self._mark))

    def _now(self) -> _Mark:
        if not self._on_gpu:
            return perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self._device))
        return mark


#: A moment: by the host's clock, or when a stream comes to it.
_Mark = float | torch.cuda.Event


def _seconds(started: _Mark, ended: _Mark) -> float:
    if isinstance(started, float) and isinstance(ended, float):
        return ended - started
    assert not isinstance(started, float), "both ends of a lap are of one kind"
    assert not isinstance(ended, float), "both ends of a lap are of one kind"
    ended.synchronize()
    return float(started.elapsed_time(ended)) * 1e-3


def __getattr__(name: str) -> type[LapTimer]:
    """Accept the old name of `LapTimer` for one release."""
    if name != "Stopwatch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("Stopwatch is now LapTimer; the next release drops the old name", FutureWarning, stacklevel=2)
    return LapTimer
