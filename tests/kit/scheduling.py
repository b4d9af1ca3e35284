"""Which tests one process of xdist runs together: those that share something costly, else those of a file.

xdist knows tests by their ids alone, so what a test needs is read from its file. (Its own ``--dist loadgroup`` does not
work with pytest 9.2, which keeps no ``_nodeid``.)
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: What is costly to have twice at a time, by a word in a test's file, and the group of what needs it.
SHARED = {"controlplane": "cluster", "rank_pool": "ranks"}
#: In a file whose tests share what they set up, or count on their order.
_SHARES = ('scope="module"', 'scope="class"', 'scope="package"')


class GroupScheduling(LoadScopeScheduling):
    """Gives each process a group of tests after the other, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._root = Path(str(config.rootpath))

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self._root)


def group_of(nodeid: str, root: Path) -> str:
    """The group of a test: a word of `SHARED`, its own id where its file is long and shares nothing, or its file."""
    path = nodeid.partition("::")[0]
    word = _group_of_file(root / path)
    return nodeid if word == "each" else word or path


@cache
def _group_of_file(file: Path) -> str | None:
    text = file.read_text(encoding="utf-8")
    for word, group in SHARED.items():
        if word in text:
            return group
    return "each" if "mark.slow" in text and not any(each in text for each in _SHARES) else None
