"""One control plane and one operator for all tests here; a namespace for each."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane
from trimtab_operator.kube.api import Api
from workbench import Operators, Workbench, connect, install

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as control_plane:
        install(control_plane)
        yield control_plane


@pytest.fixture
def own_control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """One that nobody else uses: it may be disturbed, where an operator of the other's would lose its lease."""
    with ControlPlane(tmp_path) as control_plane:
        install(control_plane)
        yield control_plane


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    return connect(control_plane)


@pytest.fixture(scope="session")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    operators = Operators(control_plane, tmp_path_factory.mktemp("operators"))
    operators.start()
    ended = threading.Event()
    keeping = threading.Thread(target=operators.keep_one_leading, args=(ended,))
    keeping.start()
    yield operators
    ended.set()
    keeping.join()
    operators.stop()


@pytest.fixture
def namespace(control_plane: ControlPlane, api: Api) -> Workbench:
    return Workbench(control_plane, api, f"test-{next(_NUMBERS)}")


@pytest.fixture
def bench(namespace: Workbench, operator: Operators) -> Workbench:
    """A namespace that an operator looks after."""
    return namespace
