"""Messages that are too long."""

import pytest
from trimtab_operator.kube.text import LONGEST_MESSAGE, truncate


@pytest.mark.parametrize("length", [0, 1, LONGEST_MESSAGE])
def test_what_is_short_enough_is_told_whole(length):
    assert truncate("x" * length) == "x" * length


@pytest.mark.parametrize("length", [1, 2, 1000, 100_000])
def test_of_what_is_too_long_the_middle_is_left_out(length):
    said = truncate("worker 1 cannot start: " + "x" * (LONGEST_MESSAGE + length) + "; delete the job")
    assert said.startswith("worker 1 cannot start: xxx")
    assert " … " in said
    assert said.endswith("xxx; delete the job")
    assert len(said) == LONGEST_MESSAGE
    assert truncate(said) == said


def test_what_is_shortened_to_little_keeps_both_ends():
    assert truncate("0123456789", 9) == "012 … 789"
    assert truncate("0123456789", 8) == "012 … 89"
