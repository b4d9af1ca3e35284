"""The chart as a real helm renders it."""

import pytest
from helm_chart import Helm, binaries


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    return Helm(binaries.obtain(("helm",))["helm"], tmp_path_factory.mktemp("helm"))
