"""What `trimtab bench step` takes for the time of a step."""

from itertools import cycle

import pytest
from trimtab.evaluation.bench import step_worker


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which steps move on."""
    now = [0.0]
    monkeypatch.setattr(step_worker.time, "perf_counter", lambda: now[0])
    return now


def test_a_round_of_local_steps_is_measured_as_a_whole(clock: list[float]) -> None:
    """Its median step exchanges nothing: by that, whole updates of four steps once looked as if they cost nothing."""
    taken = cycle([1.0, 1.0, 1.0, 5.0])

    def step() -> None:
        clock[0] += next(taken)

    assert step_worker.seconds_a_step(step, 9, steps_a_round=4) == 2.0
    assert clock[0] == 3 * 8.0, "three rounds, of which the last is whole too"
    assert step_worker.seconds_a_step(step, 3) == 1.0
