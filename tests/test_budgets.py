"""A file that costs too much is found, and each budget is of a file that exists."""

import tomllib
from collections import Counter
from pathlib import Path

from kit import budgets


def test_a_file_over_one_and_a_half_budgets_is_found():
    spent = {"dear": 31.0, "just": 30.0, "unlisted": budgets.UNLISTED_SECONDS * 1.6, "cheap": 1.0}
    found = budgets.over_budget(spent, {"dear": 20.0, "just": 20.0, "cheap": 20.0})
    assert found == {"dear": 1.55, "unlisted": 1.6}


def test_each_budget_is_of_a_file_that_exists():
    root = Path(__file__).parents[1]
    tables = tomllib.loads(budgets.FILE.read_text())
    assert set(tables) == {"test", "full"}
    assert [file for table in tables.values() for file in table if not (root / file).is_file()] == []


def test_each_test_file_has_a_name_of_its_own():
    """One pytest run imports them all by their names alone."""
    found = Counter(file.name for file in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, num in found.items() if num > 1] == []
