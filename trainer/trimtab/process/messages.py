"""Messages to people, one line each on stderr: the logger ``trimtab``, which importing this module sets up.

Rank 0 speaks for all ranks: what `for_rank` logs as information is dropped on every other rank; warnings and errors are
not. A script that gives the logger handlers of its own, before it imports `trimtab`, gets the messages there instead.
"""

from __future__ import annotations

import contextlib
import logging
import sys


class _Messages(logging.Logger):
    """A logger that a script's `logging.config.dictConfig` leaves on: by default that disables those that there are."""

    @property
    def disabled(self) -> bool:
        """False; its level and its handlers say what is printed."""
        return False

    @disabled.setter
    def disabled(self, value: bool) -> None: ...


def _make_logger() -> logging.Logger:
    usual = logging.getLoggerClass()
    logging.setLoggerClass(_Messages)
    try:
        return logging.getLogger("trimtab")
    finally:
        logging.setLoggerClass(usual)


LOGGER = _make_logger()


def for_rank(rank: int) -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of one rank, whose information is that of rank 0 alone."""
    return logging.LoggerAdapter(LOGGER, {"rank": rank})


class _ToStderr(logging.Handler):
    """Prints to what is `sys.stderr` by then; what cannot be printed, as on a full disk, is lost."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(self.format(record), file=sys.stderr, flush=True)


def _speaks(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or getattr(record, "rank", 0) == 0


def _set_up() -> None:
    if LOGGER.handlers:
        return
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("trimtab: %(message)s"))
    handler.addFilter(_speaks)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False  # a script that logs to stderr by the root logger would print each line twice


_set_up()
