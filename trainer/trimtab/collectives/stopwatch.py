"""Where an exchange's time went: compression or communication."""

from __future__ import annotations

from time import perf_counter

import torch


class Stopwatch:
    """Adds each lap to one of two sums; a lap ends when the device has finished what was asked of it."""

    def __init__(self, device: torch.device) -> None:
        self.compress_seconds = 0.0
        self.collective_seconds = 0.0
        self._device = device
        self._mark = perf_counter()

    def resume(self) -> None:
        """Begin a lap: what has passed since the last one was waiting for other buffers."""
        self._mark = perf_counter()

    def compressed(self) -> None:
        """End a lap of selecting, packing or unpacking."""
        self.compress_seconds += self._lap()

    def communicated(self) -> None:
        """End a lap of sending and waiting."""
        self.collective_seconds += self._lap()

    def _lap(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        started, self._mark = self._mark, perf_counter()
        return self._mark - started
