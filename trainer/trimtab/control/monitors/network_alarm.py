"""The alarm that the network is not measured, and its end. Pure: times go in, sentences come out."""

from __future__ import annotations

from typing import Any

from trimtab_api.netmon.view import NetworkView

#: Seconds for which a network that was measured may go unmeasured before anything is said.
PATIENCE_SECONDS = 30.0


def problem_of(view: NetworkView) -> str:
    """Return why nothing is measured, in one sentence; empty where the network is measured."""
    if view.problem:
        return view.problem
    return "" if view.is_measured or not view.stale else "the monitors have not measured every link yet"


def network_line(problem: str, now: float) -> dict[str, Any]:
    """Return the line of ``decisions.jsonl`` that says why the network is not measured, or that it is again.

    Args:
        problem: Why nothing is measured; empty if the network is measured.
        now: Seconds on the run's clock.
    """
    return {"record": "network", "time": round(now, 4), "problem": problem}


class NetworkAlarm:
    """Decides what to say of a network that is not measured: the problem once, and its end once."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_raised = False

    def look(self, problem: str, now: float, patience: float = PATIENCE_SECONDS) -> str | None:
        """Return the problem to tell, an empty string to tell that it is over, or None to tell nothing.

        Args:
            problem: Why nothing is measured now; empty where the network is measured.
            now: Seconds by any clock.
            patience: Seconds that a problem has to last before it is told.
        """
        if not problem:
            was_raised, self._is_raised, self._since = self._is_raised, False, None
            return "" if was_raised else None
        if self._since is None:
            self._since = now
        if self._is_raised or now - self._since < patience:
            return None
        self._is_raised = True
        return problem
