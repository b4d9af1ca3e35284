"""One mesh of twelve processes for the whole session: importing torch takes seconds, an exchange milliseconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import SIZES, Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    everyone = Ranks(SIZES)
    yield everyone
    everyone.close()
