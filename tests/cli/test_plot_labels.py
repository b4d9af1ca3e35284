"""Labels of dots that are close to each other."""

from __future__ import annotations

from trimtab.report.plot import joined


def test_labels_apart_stay_as_they_are():
    labels = [(0.0, 10.0, "here"), (200.0, 10.0, "there"), (0.0, 50.0, "beneath")]
    assert sorted(joined(labels)) == sorted(labels)


def test_labels_that_would_lie_on_each_other_stand_beside_each_other():
    assert joined([(5.0, 12.0, "b"), (0.0, 10.0, "a")]) == [(0.0, 10.0, "a, b")]


def test_of_many_it_says_how_many_more_there_are_and_stays_short():
    [(x, y, text)] = joined([(float(i), 10.0, f"cell {i}") for i in range(9)])
    assert (x, y, text) == (0.0, 10.0, "cell 0, cell 1 and 7 more")
