"""One cluster for all tests here, with Trimtab installed by its chart; a namespace for each test."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("cluster", "chart")]

import binaries
import definition
import images
import machine_images
import pod_monitors
from cluster import Cluster
from helm_chart import Helm
from node import Node
from place import StepTag
from release import Release

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Ground:
    """A cluster that tests run on."""

    kubeconfig: Path
    images: images.Images
    node: Node | None
    """The tests' own node; None on a cluster that was given."""

    def place(self, namespace: str) -> StepTag:
        """A namespace of it."""
        return StepTag(self.program("kubectl"), self.kubeconfig, namespace)

    def program(self, name: str) -> Path:
        """kubectl or helm; on a cluster that was given its user's own will do."""
        return binaries.obtain((name,), on_path=self.node is None)[name]


@pytest.fixture(scope="session")
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    given = request.config.getoption("--kubeconfig")
    if given:
        registry, tag = (request.config.getoption(name) for name in ("--registry", "--tag"))
        ground = Ground(Path(given), images.Images(registry or images.REGISTRY, tag or images.VERSION), None)
        if why := definition.why_taken(ground.place("default")):
            pytest.exit(why, returncode=pytest.ExitCode.USAGE_ERROR)
        yield ground
        return
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        if request.config.getoption("--built-images"):
            images.give(cluster.node, *images.NAMES)
        else:
            machine_images.give(cluster.node, tmp_path_factory.mktemp("images"), images.REGISTRY, images.VERSION)
        yield Ground(cluster.control_plane.kubeconfig, images.Images(), cluster.node)


@pytest.fixture(scope="session")
def shown() -> Path:
    """Return the folder for what kubectl prints, which tutorials quote: runs/e2e, emptied of the last run's files."""
    folder = images.ROOT / "runs/e2e"
    folder.mkdir(parents=True, exist_ok=True)
    for each in folder.glob("*.txt"):
        each.unlink()
    return folder


@pytest.fixture(scope="session")
def node(ground: Ground) -> Node:
    if ground.node is None:
        pytest.skip("of the tests' own node, not of a cluster that was given")
    return ground.node


@pytest.fixture(scope="session")
def release(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    helm = Helm(ground.program("helm"), tmp_path_factory.mktemp("helm"))
    release = Release(helm, ground.kubeconfig, "trimtab-e2e")
    settings = ground.images.settings()
    if ground.node is not None:  # whether a cluster that was given has the Prometheus operator is for its owner to say
        its = ground.place("default")
        for each in pod_monitors.definitions():
            its.apply(each)
            its.wait(f"crd/{each['metadata']['name']}", "condition=Established")
        settings.append("--set=monitoring.enabled=true")
    release.install(*settings)
    yield release
    release.remove()
    its = ground.place(release.namespace)
    its.delete()
    if left := definition.remove_if_unused(its):
        warnings.warn(f"{definition.NAME} stays, because of jobs of others: {', '.join(left)}", stacklevel=1)


@pytest.fixture(scope="module")
def new_place(ground: Ground) -> Iterator[Callable[[], StepTag]]:
    """Makes namespaces, which go with the tests of a module."""
    made: list[StepTag] = []

    def make() -> StepTag:
        made.append(ground.place(f"trimtab-e2e-{next(_NUMBERS)}"))
        made[-1].kubectl("create", "namespace", made[-1].namespace)
        return made[-1]

    yield make
    for each in made:
        each.delete()
    for each in made:
        each.wait_until_gone()


@pytest.fixture
def place(new_place: Callable[[], StepTag]) -> StepTag:
    return new_place()
