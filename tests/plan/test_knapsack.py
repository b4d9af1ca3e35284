"""Knapsacks against trying everything."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.papers.deft.knapsack import knapsack, recursive_knapsack, two_knapsacks

weights = st.lists(st.floats(0.01, 10), max_size=9)
capacities = st.floats(0, 30)


def subsets(items):
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))


def fullest(given_weights, capacity):
    """The most that fits, by trying every choice."""
    sums = (sum(each) for each in subsets(given_weights))
    return max(each for each in sums if each <= capacity)


@given(weights, capacities)
def test_the_fullest_choice_is_found_to_within_a_ten_thousandth_for_each_item(given_weights, capacity):
    chosen = knapsack(given_weights, capacity)
    filled = sum(given_weights[item] for item in chosen)
    assert list(chosen) == sorted(set(chosen))
    units = len(given_weights) * capacity / 10_000 + 1e-9
    assert fullest(given_weights, capacity) - units <= filled <= capacity + units


def test_a_choice_that_a_greedy_one_would_miss():
    assert knapsack([6.0, 5.0, 5.0], 10.0) == (1, 2)
    assert knapsack([1 / 3] * 4, 1.0) == (0, 1, 2), "what fills it exactly"
    assert knapsack([], 10.0) == knapsack([1.0], 0.0) == ()


def one_link(given_weights, seconds):
    return (knapsack(given_weights, seconds[0]),)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.01, 5)), min_size=1, max_size=7), capacities)
def test_of_orders_that_begin_later_the_fullest_is_taken(items, capacity):
    given_weights, steps = zip(*items, strict=True)
    (chosen,) = recursive_knapsack(given_weights, steps, [capacity], one_link)
    filled = sum(given_weights[item] for item in chosen)
    begins = [capacity - sum(steps[:first]) for first in range(len(items))]
    best = max(fullest(given_weights[first:], left) for first, left in enumerate(begins) if left >= 0)
    units = len(items) * capacity / 10_000 + 1e-9
    assert best - units <= filled <= capacity + units


def test_of_equally_full_orders_the_latest_is_taken():
    assert recursive_knapsack([2.0, 2.0], [1.0, 1.0], [3.0], one_link) == ((1,),)


@given(weights, capacities, st.floats(1, 4))
def test_each_of_two_knapsacks_holds_what_its_link_can_send(given_weights, capacity, ratio):
    fast, slow = two_knapsacks(given_weights, [capacity, capacity], ratio)
    assert not set(fast) & set(slow)
    assert sum(given_weights[item] for item in fast) <= capacity + 1e-9
    assert ratio * sum(given_weights[item] for item in slow) <= capacity * (1 + 1e-9), "the slow link takes longer"
    left = capacity - sum(given_weights[item] for item in fast)
    assert all(given_weights[i] > left for i in range(len(given_weights)) if i not in (*fast, *slow))


@pytest.mark.parametrize(("ratio", "expected"), [(1.65, ((1, 2), (0,))), (4.0, ((0, 1), (2,)))])
def test_the_smaller_knapsack_is_filled_first_with_the_longest_that_fits(ratio, expected):
    assert two_knapsacks([5.0, 4.0, 2.0], [9.0, 9.0], ratio) == expected
