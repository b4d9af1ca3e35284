"""The chart as a real helm renders it, and what those export whom it has scraped."""

import pytest
from exporters import scrape_all
from helm_chart import Helm, binaries


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    return Helm(binaries.obtain(("helm",))["helm"], tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def scraped(tmp_path_factory):
    """What a real operator that does not lead, a real monitor and the server of a run's metrics export."""
    return scrape_all(tmp_path_factory.mktemp("scraped"))
