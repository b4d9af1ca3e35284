"""Progress of a simulated training, read off recorded curves of real ones."""

from dataclasses import replace

import pytest
from trimtab.evaluation.judge.networks import networks
from trimtab.evaluation.judge.recorded import Recorded, load
from trimtab.evaluation.judge.simulation import SimulatedCell, grid
from trimtab.evaluation.judge.workloads import WORKLOADS
from trimtab.plan.plan import Plan
from trimtab_netmon.emulate import load_network

DENSE, SPARSE = Plan.parse("dense"), Plan.parse("0.01/all-gather")
UPDATES = Plan.parse("dense-ring/source=update:steps=4")


def falling(times: float, until: int) -> tuple[tuple[int, float], ...]:
    """A loss that dense brings from 1 to 0 in a hundred steps, and this plan in ``times`` as many."""
    return tuple((step, 1 - step / (100 * times)) for step in range(5, until + 1, 5))


def recorded(sparse) -> Recorded:
    updates = replace(SPARSE, source=UPDATES.source)
    curves = {DENSE: falling(1, 100), SPARSE: sparse, UPDATES: falling(2, 200), updates: falling(4, 400)}
    return Recorded(0.0, 1000, 0.1, curves)


@pytest.mark.parametrize("progress", [0.0, 30.0, 60.0, 99.0, 150.0])
def test_a_step_is_worth_as_much_as_the_curves_say(progress):
    known = recorded(falling(2, 200))
    assert known.dense_steps == 100
    assert known.pace(DENSE, progress) == pytest.approx(1)
    assert known.pace(SPARSE, progress) == pytest.approx(0.5)
    assert known.pace(UPDATES, progress) == pytest.approx(0.5)


def test_between_recorded_ratios_it_is_interpolated_and_below_them_the_slope_goes_on():
    known = recorded(falling(4, 400))
    assert known.pace(replace(SPARSE, ratio=0.1), 50) == pytest.approx(0.5)
    assert known.pace(replace(SPARSE, ratio=0.0001), 50) == pytest.approx(1 / 16)


def test_a_run_that_ended_early_goes_on_as_slowly_as_it_had_gone():
    for until in (180, 120):
        known = recorded(falling(4, until))
        assert known.pace(SPARSE, 90) == pytest.approx(0.25)


def test_what_no_curve_speaks_for_is_not_known():
    known = recorded(falling(2, 200))
    assert {plan.local_steps for plan in grid() if known.knows(plan)} == {0, 1, 4}
    assert not known.knows(Plan.parse("0.01/artopk-star-ring"))


def test_a_record_is_the_same_after_it_was_written_and_read():
    known = recorded(falling(2, 200))
    assert Recorded.from_json(known.to_json()).pace(SPARSE, 50) == known.pace(SPARSE, 50)


def test_what_runs_for_real_are_plans_of_other_ratios_and_sources_and_not_the_same_sums_another_way():
    names = ["dense-halving/source=update:steps=4", "dense-tree/source=update:steps=4", "dense", "dense-tree"]
    names += ["0.011/all-gather", "0.004/all-gather/source=update:steps=4"]
    cell = SimulatedCell(1.0, {name: float(i) for i, name in enumerate(names)}, in_best_buffers="dense")
    assert cell.first(3, besides="dense") == [names[0], *names[4:]]
    assert cell.first(1, besides="dense") == names[:1]


@pytest.mark.parametrize("workload", [each.name for each in WORKLOADS])
def test_the_curves_that_ship_reach_their_targets(workload, tmp_path):
    known = load(workload, tmp_path / "none")
    assert known.target_loss == next(each.target_loss for each in WORKLOADS if each.name == workload)
    assert 50 < known.dense_steps < 300
    assert all(0.01 < known.pace(plan, 50) < 4 for plan in grid() if known.knows(plan))


@pytest.mark.parametrize(("name", "file"), [("C1", "c1"), ("C2", "c2"), ("demo", "changing")])
def test_named_networks_are_those_of_the_examples(name, file, pytestconfig):
    assert networks(1)[name] == load_network(pytestconfig.rootpath / f"examples/networks/{file}.yaml")
