"""What all tests share: the pool of ranks, and an honest account of what this machine cannot run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import hypothesis
from kit import debian_programs, scheduling
from kit.budgets import Budgets
from kit.catalogue_additions import forget_additions

# A busy machine fails no example, and the same commit tries the same ones; `--hypothesis-profile=wide` draws
# others, ten times as many.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("wide", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("same")

if TYPE_CHECKING:  # torch takes seconds to import, and most tests need none
    from kit.rank_pool import RankPool

# A shell that starts the tests in the background, or under nohup, has these ignored; what they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _why_no_namespaces() -> str | None:
    from trimtab_netmon.emulate import available

    return available()


def _why_no_cuda() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no NVIDIA GPU"


def _why_no_controlplane() -> str | None:
    sys.path.append(str(Path(__file__).parent / "cluster"))
    import binaries

    return binaries.why_missing(binaries.CONTROL_PLANE)


def _why_no_helm() -> str | None:
    sys.path.append(str(Path(__file__).parent / "cluster"))
    import binaries

    return binaries.why_missing(["helm"])


def _why_no_helm_of_the_users() -> str | None:
    sys.path.append(str(Path(__file__).parent / "cluster"))
    import binaries

    return binaries.why_missing(["helm", "kubectl"], on_path=True)


def _why_no_prometheus() -> str | None:
    sys.path += [str(Path(__file__).parent / folder) for folder in ("cluster", "chart")]
    import prometheus

    return prometheus.why_missing()


def _why_no_node() -> str | None:
    sys.path.append(str(Path(__file__).parent / "cluster"))
    import node

    return node.why_missing()


def _why_no_images() -> str | None:
    if os.geteuid() != 0:
        return "building images without Docker needs root"
    if shutil.which("buildah") is None and _docker_runs():
        return "built with docker, an image cannot be looked into without starting it: install buildah"
    return debian_programs.why_missing("images")


def _docker_runs() -> bool:
    """Whether images would be built with docker: its program alone, without an engine, builds nothing."""
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _why_no_mpi() -> str | None:
    return debian_programs.why_missing("mpi")


def _why_no_older_kernel() -> str | None:
    if os.geteuid() != 0:
        return "an older kernel on this machine's files needs root"
    if os.uname().machine != "x86_64":
        return "user-mode-linux runs on x86-64 alone"
    return debian_programs.why_missing("olderkernel")


def _why_no_browser() -> str | None:
    return debian_programs.why_missing("browser")


#: Kinds of test that a machine may be unable to run, and how to find out why.
KINDS = {
    "browser": _why_no_browser,
    "images": _why_no_images,
    "namespaces": _why_no_namespaces,
    "cuda": _why_no_cuda,
    "controlplane": _why_no_controlplane,
    "helm": _why_no_helm,
    "mpi": _why_no_mpi,
    "prometheus": _why_no_prometheus,
    "node": _why_no_node,
    "olderkernel": _why_no_older_kernel,
}
#: Kinds that a machine without an accelerator is excused from.
EXCUSED = {"cuda"}
#: Marks of tests that take long: those that have processes trained, and those that wait for a cluster or a browser.
LONG = ("slow", "controlplane", "prometheus", "browser", "mpi")
#: Kinds whose tests run while nothing else does (marker `alone`): what they measure, or fill, is the machine's.
ALONE = {"namespaces", "node", "images", "olderkernel"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require", action="store_true", help="fail instead of leaving out what this machine cannot run (GPUs apart)"
    )
    parser.addoption(
        "--check-budgets", metavar="TABLE", help="fail where a file costs more than its row in TABLE of budgets.toml"
    )
    parser.addoption("--built-images", action="store_true", help="have the pods of tests/e2e run images built here")
    parser.addoption("--kubeconfig", help="run tests/e2e on this cluster instead of one of its own")
    parser.addoption("--registry", help="with --kubeconfig: where the images are (default: localhost/trimtab)")
    parser.addoption("--tag", help="with --kubeconfig: tag of the images (default: the chart's appVersion)")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.GroupScheduling:
    return scheduling.GroupScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budgets(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:  # before `-m` selects among them
        if any(item.get_closest_marker(kind) for kind in ALONE):
            item.add_marker("alone")
        if item.get_closest_marker("node") and config.getoption("--built-images"):
            item.add_marker("images")
    # On a cluster that was given there are a node and images, and its user's helm and kubectl will do.
    kinds = dict(KINDS)
    if config.getoption("--kubeconfig"):
        kinds.update(node=lambda: None, images=lambda: None, helm=_why_no_helm_of_the_users)
    for kind, why in kinds.items():
        affected = [item for item in items if item.get_closest_marker(kind)]
        reason = why() if affected else None
        if reason is None:
            continue
        if config.getoption("--require") and kind not in EXCUSED:
            raise pytest.UsageError(f"{len(affected)} tests of kind {kind} cannot run here: {reason}")
        for item in affected:
            item.add_marker(pytest.mark.skip(reason=f"{kind}: {reason}"))
    if hasattr(config, "workerinput"):
        _begin_with_the_longest(items)


def _begin_with_the_longest(items: list[pytest.Item]) -> None:
    """The shared groups first, then groups with most long tests: what is left to the last process is short."""
    root = Path(str(items[0].config.rootpath)) if items else Path()
    groups = {id(item): scheduling.group_of(item.nodeid, root) for item in items}
    long = Counter(groups[id(item)] for item in items if any(item.get_closest_marker(mark) for mark in LONG))
    shared = set(scheduling.SHARED.values())
    items.sort(key=lambda item: (groups[id(item)] not in shared, -long[groups[id(item)]]))


@pytest.hookimpl(tryfirst=True)  # before the loop of a process that runs tests for another
def pytest_runtestloop(session: pytest.Session) -> None:
    """Before the first test: all programs that any of them calls."""
    if session.config.getoption("collectonly"):
        return
    running = [item for item in session.items if not item.get_closest_marker("skip")]
    kinds = {kind for kind in KINDS if any(item.get_closest_marker(kind) for item in running)}
    if session.config.getoption("--kubeconfig"):  # the node, and what holds images, are somebody else's
        kinds -= {"node", "images"}
    debian_programs.install(["any", *kinds])
    debian_programs.refuse_unlisted_programs()


@pytest.fixture(autouse=True, scope="module")
def _leave_no_schemes_behind() -> Iterator[None]:
    """What a test adds to the catalogue is known to this process, and so to the tests of files that it runs later."""
    yield
    forget_additions()


@pytest.fixture(scope="session")
def rank_pool() -> Iterator[RankPool]:
    from kit.rank_pool import RankPool

    pool = RankPool()
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def gpu_rank_pool() -> Iterator[RankPool]:
    """Ranks that share a GPU, joined by NCCL."""
    from kit.rank_pool import RankPool

    pool = RankPool(backend="nccl")
    yield pool
    pool.close()
