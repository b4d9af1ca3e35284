"""Records of rank 0 while it trains: ``metrics.jsonl`` and ``decisions.jsonl``, a JSON object a line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.run_files.layout import RunDirectory, best_effort
from trimtab.run_files.line_file import LineFile

_ENCODER = json.JSONEncoder(allow_nan=False)


class Recorder:
    """Appends to the run's files; every line is complete on disk when the call returns.

    Without a run directory it records nothing. What cannot be written ends no training (`best_effort`).
    """

    def __init__(self, run_dir: Path | None) -> None:
        self._began: float | None = None
        self._directory = None if run_dir is None else RunDirectory(run_dir)
        self._files: dict[Path, LineFile] = {}
        if self._directory is not None:
            with best_effort(self._directory.path):
                self._directory.path.mkdir(parents=True, exist_ok=True)
                for path in (self._directory.metrics, self._directory.decisions):
                    self._files[path] = LineFile(path)

    def starting(self, sentence: str) -> None:
        """Say what is being done before the first step, for whoever waits for it."""
        if self._directory is not None:
            with best_effort(self._directory.path):
                self._directory.tell_starting(sentence)

    def begin(self) -> None:
        """Note that all ranks are ready: this is time zero, which the file ``started`` tells the launcher."""
        self.starting("all ranks are ready; the first step is under way")
        self._began = time.monotonic()
        if self._directory is not None:
            with best_effort(self._directory.path):
                self._directory.started.touch()

    @property
    def now(self) -> float:
        """Seconds since `begin`; 0 before it, so that a decision made before the first step has the earliest time."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def metric(self, line: dict[str, Any]) -> None:
        """Write one line of ``metrics.jsonl``, with the time added."""
        if self._directory is not None:
            self._append(self._directory.metrics, [{"time": round(self.now, 4), **line}])

    def decision(self, line: dict[str, Any]) -> None:
        """Write one line of ``decisions.jsonl``, as the controller made it."""
        if self._directory is not None:
            self._append(self._directory.decisions, [line])

    def traces(self, lines: Sequence[dict[str, Any]]) -> None:
        """Write lines of ``trace.jsonl``: moments are by `time.perf_counter` here, and count from `begin` there."""
        if self._directory is None or not lines:
            return
        zero = time.perf_counter() - self.now
        moved = []
        for line in lines:
            spans = [
                span | {"begin": round(span["begin"] - zero, 7), "end": round(span["end"] - zero, 7)}
                for span in line["spans"]
            ]
            moved.append(line | {"spans": spans})
        self._append(self._directory.trace, moved)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _append(self, path: Path, lines: Sequence[dict[str, Any]]) -> None:
        encoded = [_to_line(line) for line in lines]  # what is no JSON is a mistake, wherever it is written
        with best_effort(path.parent):
            if path not in self._files:
                self._files[path] = LineFile(path)
            for line in encoded:
                self._files[path].write(line)


def _to_line(data: dict[str, Any]) -> str:
    try:
        return _ENCODER.encode(data) + "\n"
    except ValueError:  # a value that is not finite, which is rare: looking for one takes as long as encoding
        return _ENCODER.encode(_finite(data)) + "\n"


def _finite(value: Any) -> Any:
    """Replace infinity and not-a-number by null, since JSON has no word for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
