"""A state comes back as it was taken apart, and nothing but plain data and tensors is kept."""

from __future__ import annotations

import json
import math
import random
from argparse import Namespace
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from trimtab.checkpoint.state_tree import NotPlainError, put_together, take_apart

PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=5),
        st.sampled_from([torch.float32, torch.bfloat16, torch.int64]),
        st.lists(st.floats(width=32), max_size=4).map(torch.tensor),
        st.lists(st.integers(0, 2**32 - 1), max_size=4).map(lambda each: np.array(each, dtype=np.uint32)),
        st.integers(-5, 5).map(np.int16),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(), st.just("$")), inner, max_size=3),
        st.frozensets(st.integers(), max_size=3).map(set),
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return type(b) is torch.Tensor and a.dtype == b.dtype and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@given(PLAIN)
def test_what_is_taken_apart_comes_back_as_it_was(state: Any) -> None:
    parts = take_apart(state)
    assert same(state, put_together(json.loads(json.dumps(parts.skeleton)), parts.tensors))


def test_generators_and_optimizers_come_back() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    parts = take_apart([random.getstate(), np.random.get_state(), optimizer.state_dict()])
    python, numpy, kept = put_together(json.loads(json.dumps(parts.skeleton)), parts.tensors)
    assert python == random.getstate()
    assert all(np.array_equal(a, b) for a, b in zip(numpy, np.random.get_state(), strict=True))
    assert same(kept["param_groups"], optimizer.state_dict()["param_groups"])
    assert all(same(kept["state"][index], state) for index, state in optimizer.state_dict()["state"].items())


def test_tensors_that_are_one_are_kept_once() -> None:
    tied = torch.ones(3)
    assert len(take_apart({"a": tied, "b": tied, "c": tied[1:]}).tensors) == 2


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize("wrong", [Namespace(a=1), Level.LOW, lambda: None, torch.ones(2).to_sparse(), np.array(["a"])])
def test_what_is_no_plain_data_is_refused_by_its_place(wrong: Any) -> None:
    with pytest.raises(NotPlainError, match=r"^state\['deep'\]\[1\] is "):
        take_apart({"deep": [0, wrong]})


@pytest.mark.parametrize(
    "skeleton", [{"$": "code", "is": "x"}, {"$": "tensor", "is": "t9"}, {"$": "dtype", "is": "nn"}, {"$": 1}]
)
def test_a_file_that_holds_no_state_is_refused(skeleton: Any) -> None:
    with pytest.raises(NotPlainError):
        put_together(skeleton, {})
