"""The time that software adds to a closed form, learned while training, and kept when the network changes.

A scheme whose longest chain is ``m`` messages and ``b`` bytes takes::

    t = a * m * alpha + o * m + e * b * beta + g * b + w

with a ~ 1 (more where a transport shakes hands), o seconds a message, e ~ 1, g seconds a byte (copies, checksums: they
do not shrink with the network's beta) and w seconds an exchange (waiting for the slowest rank to arrive). Each scheme
has its own five, drawn from five that its family (dense, sparse) shares, and these from five of the whole machine, so
that a scheme never run is predicted by its kin. The estimate is the mode of a Gaussian posterior (weighted ridge
regression) on relative errors; the priors keep apart what one network alone cannot: at one alpha, a and o share what
is observed by how much each may plausibly vary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from trimtab_api.catalogue import Cost, collectives


@dataclass(frozen=True)
class _Prior:
    mean: float
    shared_deviation: float
    """Deviation of this machine's coefficient from the mean."""
    kin_deviation: float
    """Deviation of a family's from the machine's, and of a scheme's from its family's."""
    least: float


class _Coefficients(NamedTuple):
    """The coefficients of a scheme, in the order of the features."""

    a: float
    o: float
    e: float
    g: float
    w: float


#: In the order of the features: m * alpha, m, b * beta, b, 1.
_PRIORS = (
    _Prior(1.0, 0.2, 0.15, 0.8),
    _Prior(2e-4, 1e-3, 3e-4, 0.0),
    _Prior(1.05, 0.1, 0.15, 0.5),  # a tree whose rounds overlap stays well under its closed form
    _Prior(5e-10, 1e-9, 5e-10, 0.0),
    _Prior(2e-3, 1e-2, 3e-3, 0.0),
)
#: Observations kept of one plan on one network, and plans-on-networks kept.
_SAMPLES, _CELLS = 15, 96
#: Once a plan has been seen three times on a network, coefficients are fitted anew only so often.
_REFIT_EVERY = 8
#: Of an exchange's time: what is held to be between hosts, however long the exchange inside them was thought to take.
_LEAST_SHARE = 0.1
#: Networks whose alpha and beta agree to this logarithm are the same one.
_SAME_NETWORK = log(1.15)


@dataclass
class _Cell:
    """One plan on one network: the median of its last times stands for it."""

    collective: str
    cost: Cost
    alpha: float
    beta: float
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    @property
    def relative_error(self) -> float:
        """Relative deviation of the median; never below what the model itself can resolve."""
        return max(0.05, 0.2 / sqrt(len(self.seconds)))

    def features(self) -> NDArray[np.float64]:
        return _features(self.cost, self.alpha, self.beta)

    def on_network(self, alpha: float, beta: float) -> bool:
        return abs(log(self.alpha / alpha)) < _SAME_NETWORK and abs(log(self.beta / beta)) < _SAME_NETWORK


class Overheads:
    """Predicts the time of an exchange; learns from those measured."""

    def __init__(self) -> None:
        self._cells: dict[tuple[object, ...], _Cell] = {}
        self._coefficients: dict[str, _Coefficients] | None = None
        self._misses: dict[tuple[str, float, float], list[tuple[float, float]]] = {}
        """Errors (log) of the fitted model on a network, each with the bytes measured; until the next observation."""
        self._observations = 0

    def observe(self, collective: str, cost: Cost, alpha: float, beta: float, seconds: float) -> None:
        """Learn how long an exchange took on a network.

        Args:
            collective: The scheme's name.
            cost: Closed-form cost of the exchange.
            alpha: Seconds per message on the network.
            beta: Seconds per byte on the network.
            seconds: Measured time, with what is exchanged inside hosts.
        """
        if seconds <= 0 or cost.messages == 0:
            return
        # What is exchanged inside hosts has its own time: of it only how far it is off is left for the coefficients.
        seconds = max(seconds - cost.local_seconds, _LEAST_SHARE * seconds)
        key = _key(collective, cost, alpha, beta)
        self._misses.clear()
        cell = self._cells.pop(key, None) or _Cell(collective, cost, alpha, beta)
        cell.seconds.append(seconds)
        self._cells[key] = cell  # the last key is the one seen last
        if len(self._cells) > _CELLS:
            del self._cells[next(iter(self._cells))]
        self._observations += 1
        if len(cell.seconds) <= 3 or self._observations % _REFIT_EVERY == 0:
            self._coefficients = None

    def seconds(self, collective: str, cost: Cost, alpha: float, beta: float) -> float:
        """Predict the time of an exchange of this closed-form cost."""
        if cost.messages == 0:
            return cost.local_seconds
        between = self._modelled(collective, cost, alpha, beta) * exp(self._correction(collective, cost, alpha, beta))
        return between + cost.local_seconds

    def buffer_seconds(self, collective: str, cost: Cost, whole: Cost, alpha: float, beta: float) -> float:
        """Predict the time of one buffer's exchange, without w, which is charged once a step.

        Args:
            collective: The scheme's name.
            cost: Closed-form cost of the buffer.
            whole: Closed-form cost of all buffers of a step.
            alpha: Seconds per message on the network.
            beta: Seconds per byte on the network.
        """
        if cost.messages == 0:
            return cost.local_seconds
        own = self._modelled(collective, cost, alpha, beta) - self._coefficients_of(collective).w
        return own * exp(self._correction(collective, whole, alpha, beta)) + cost.local_seconds

    def coefficients(self, collective: str) -> tuple[float, ...]:
        """Return a scheme's (a, o, e, g, w), which the module's docstring defines."""
        return self._coefficients_of(collective)

    def forget(self, collective: str, cost: Cost, alpha: float, beta: float, count: int) -> None:
        """Take back the last ``count`` observations of a cell: the network was no longer what it was taken for."""
        key = _key(collective, cost, alpha, beta)
        cell = self._cells.get(key)
        if cell is None:
            return
        for _ in range(min(count, len(cell.seconds))):
            cell.seconds.pop()
        if not cell.seconds:
            del self._cells[key]
        self._coefficients = None
        self._misses.clear()

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the cells, as JSON data."""
        return [
            {
                "collective": cell.collective,
                "messages": cell.cost.messages,
                "bytes": cell.cost.bytes,
                "alpha": cell.alpha,
                "beta": cell.beta,
                "seconds": list(cell.seconds),
            }
            for cell in self._cells.values()
        ]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Inverse of `state_dict`."""
        self._cells.clear()
        for cell in state:
            for seconds in cell["seconds"]:
                cost = Cost(cell["messages"], cell["bytes"])
                self.observe(cell["collective"], cost, cell["alpha"], cell["beta"], seconds)

    def _modelled(self, collective: str, cost: Cost, alpha: float, beta: float) -> float:
        a, o, e, g, w = self._coefficients_of(collective)
        return a * cost.messages * alpha + o * cost.messages + e * cost.bytes * beta + g * cost.bytes + w

    def _correction(self, collective: str, cost: Cost, alpha: float, beta: float) -> float:
        """Return by how much (in the logarithm) the model is off for this scheme on this very network.

        It is the mean over all sizes that were measured, in which near sizes weigh most. The nearest size alone would
        bring in the noise of one measurement: sizes a tenth apart were then predicted 1 and 8 ms, and plans changed.
        """
        network = (collective, alpha, beta)
        if network not in self._misses:
            self._misses[network] = [
                (
                    cell.cost.bytes,
                    log(median(cell.seconds) / self._modelled(collective, cell.cost, cell.alpha, cell.beta)),
                )
                for cell in self._cells.values()
                if cell.collective == collective and len(cell.seconds) >= 3 and cell.on_network(alpha, beta)
            ]
        total = weights = 0.0
        for measured_bytes, missed in self._misses[network]:
            weight = exp(-abs(log(measured_bytes / cost.bytes)))
            total, weights = total + weight * missed, weights + weight
        return total / max(1.0, weights)

    def _coefficients_of(self, collective: str) -> _Coefficients:
        if self._coefficients is None:
            fitted = _fit(list(self._cells.values()))
            self._coefficients = {name: _Coefficients(*map(float, each)) for name, each in fitted.items()}
        known = self._coefficients
        return known.get(collective, known.get(_family(collective), known["machine"]))


def _key(collective: str, cost: Cost, alpha: float, beta: float) -> tuple[object, ...]:
    return (collective, round(cost.messages), *(round(10 * log(amount)) for amount in (cost.bytes, alpha, beta)))


def _features(cost: Cost, alpha: float, beta: float) -> NDArray[np.float64]:
    return np.array([cost.messages * alpha, cost.messages, cost.bytes * beta, cost.bytes, 1.0])


def _family(collective: str) -> str:
    return "dense" if collectives[collective].is_dense else "sparse"


def _fit(cells: Sequence[_Cell]) -> dict[str, NDArray[np.float64]]:
    """Fit coefficients by scheme seen, by family seen, and of the ``machine``.

    Unknowns are five coefficients of each, in units of `kin_deviation`. Each cell is an equation, and so is each prior:
    that of the machine, and how little a family's differ from the machine's and a scheme's from its family's.
    """
    schemes = sorted({cell.collective for cell in cells})
    nodes = ["machine", *sorted({_family(scheme) for scheme in schemes}), *schemes]
    width = len(_PRIORS)
    columns = {node: slice(width * i, width * (i + 1)) for i, node in enumerate(nodes)}
    unit = np.array([prior.kin_deviation for prior in _PRIORS])
    mean, least = (np.array([getattr(prior, name) for prior in _PRIORS]) / unit for name in ("mean", "least"))
    shared = unit / np.array([prior.shared_deviation for prior in _PRIORS])
    rows = np.eye(width * len(nodes))
    rows[columns["machine"], columns["machine"]] = np.diag(shared)
    targets = np.zeros(len(rows))
    targets[columns["machine"]] = shared * mean
    for node in nodes[1:]:
        rows[columns[node], columns[_family(node) if node in schemes else "machine"]] = -np.eye(width)
    measured = np.zeros((len(cells), len(rows)))
    for i, cell in enumerate(cells):
        measured[i, columns[cell.collective]] = unit * cell.features() / (cell.relative_error * median(cell.seconds))
    told = [1 / cell.relative_error for cell in cells]
    solution = _least_squares(np.vstack([rows, measured]), np.append(targets, told), np.tile(least, len(nodes)))
    return {node: unit * solution[columns[node]] for node in nodes}


def _least_squares(
    rows: NDArray[np.float64], targets: NDArray[np.float64], least: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve for the x >= ``least`` with the least squares of rows @ x - targets; hold what would be less at its least.

    The other unknowns make up for it. Merely raised to its least, a coefficient would leave them as if it were less:
    when messages seemed to save time, exchanges were predicted 10 ms too long.
    """
    held = np.zeros(len(least), dtype=bool)
    while True:
        solution, free = least.copy(), rows[:, ~held]
        missing = targets - rows[:, held] @ least[held]
        solution[~held] = np.linalg.solve(free.T @ free, free.T @ missing)
        below = ~held & (solution < least)
        if not below.any():
            return solution
        held |= below
