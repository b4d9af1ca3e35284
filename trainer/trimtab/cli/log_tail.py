"""The output of a rank's script, as it prints it: the end of its log, which the rank writes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.launch.processes.children import rank_name
from trimtab.run_files.layout import RunDirectory


class LogTail:
    """The lines of one rank's log, each once. After a restart, whose logs are new, it begins anew."""

    def __init__(self, directory: RunDirectory, rank: int) -> None:
        self._file = directory.log(rank_name(rank))
        self._num_read = 0
        self._unfinished = b""

    def new_lines(self) -> Iterator[str]:
        """Yield the whole lines that have come since the last call; an unfinished line waits for its end."""
        try:
            with self._file.open("rb") as log:
                if log.seek(0, 2) < self._num_read:
                    self._num_read, self._unfinished = 0, b""
                log.seek(self._num_read)
                new = log.read()
        except FileNotFoundError:
            return
        self._num_read += len(new)
        *lines, self._unfinished = (self._unfinished + new).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r").decode(errors="replace")

    def rest(self) -> Iterator[str]:
        """Yield what has come at the end, a last line that was not finished included."""
        yield from self.new_lines()
        if self._unfinished:
            yield self._unfinished.decode(errors="replace")
            self._unfinished = b""
