"""A network monitor that lies or vanishes costs little: training is never much slower than dense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from driving import cluster, train
from simulator import GIGABIT, dense
from trimtab.control.types import ControllerSettings
from trimtab.evaluation.judge import simulated_run
from trimtab.evaluation.judge.simulated_monitor import SimulatedMonitor
from trimtab.evaluation.judge.simulated_run import SimulatedRun
from trimtab_api.netmon.view import NetworkView

Lie = Callable[[NetworkView, float], NetworkView | None]
#: A network on which compression pays, and one on which it does not.
SLOW, FAST = (2e-3, 0.3 * GIGABIT), (0.1e-3, 40 * GIGABIT)


class LyingMonitor:
    """Stands between a simulated monitor and the controller."""

    def __init__(self, honest: Any, lie: Lie) -> None:
        self._honest, self._lie = honest, lie

    @property
    def has_news(self) -> bool:
        return bool(self._honest.has_news)

    @has_news.setter
    def has_news(self, value: bool) -> None:
        self._honest.has_news = value

    def advance(self, now: float, simulated: Any, controller: Any) -> None:
        self._honest.advance(now, simulated, _Ear(controller, self._lie))


class _Ear:
    def __init__(self, controller: Any, lie: Lie) -> None:
        self.drift, self._controller, self._lie = controller.drift, controller, lie

    def observe_network(self, view: NetworkView, at: float) -> None:
        told = self._lie(view, at)
        if told is not None:
            self._controller.observe_network(told, at)


def times(latency: float, bandwidth: float) -> Lie:
    return lambda view, _: replace(view, latency=view.latency * latency, bandwidth=view.bandwidth * bandwidth)


def in_turns(view: NetworkView, at: float) -> NetworkView:
    """Tell of a network a thousand times faster, and then of one as much slower, every three seconds."""
    factor = 1000.0 if int(at / 3) % 2 else 1e-3
    return replace(view, latency=view.latency / factor, bandwidth=view.bandwidth * factor)


def until(seconds: float) -> Lie:
    return lambda view, at: view if at < seconds else None


LIES: dict[str, Lie] = {
    "far too fast": times(1e-3, 1e3),
    "far too slow": times(1e3, 1e-3),
    "absurd": times(1e9, 1e-9),
    "in turns": in_turns,
    "vanishes": until(20.0),
    "never speaks": until(0.0),
}


#: Seconds that each run trains.
SECONDS = 60


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Callable[..., float]:
    """Train on a network under a monitor that lies, and return how far training came."""

    def progress(network: tuple[float, float], settings: ControllerSettings, lie: Lie | None) -> float:
        def make_monitor(seed: int) -> Any:
            honest = SimulatedMonitor(seed)
            return honest if lie is None else LyingMonitor(honest, lie)

        monkeypatch.setattr(simulated_run, "SimulatedMonitor", make_monitor)
        return float(train(SimulatedRun(cluster((0, *network)), settings, seed=1), SECONDS).progress)

    return progress


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("far too fast", SLOW),
        ("far too slow", FAST),
        ("absurd", SLOW),
        pytest.param("in turns", SLOW, marks=pytest.mark.full),
        pytest.param("in turns", FAST, marks=pytest.mark.full),
        ("vanishes", SLOW),
        ("never speaks", SLOW),
    ],
)
def test_training_is_not_much_slower_than_dense_whatever_the_monitor_tells(
    name: str, network: tuple[float, float], progress: Callable[..., float]
) -> None:
    ratio = progress(network, ControllerSettings(), LIES[name]) / progress(network, dense(), None)
    assert ratio > 0.9, f"{ratio:.2f} of dense's progress"
