"""Buffers of a fixed size: every tensor in one, every buffer within its bound, none cut before it had to be."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from trimtab.plan.fusion import plan_of
from trimtab_api.catalogue import BYTES_PER_ELEMENT

SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=50)


def buffers(sizes, plan):
    """The tensors of each buffer."""
    offsets = [0, *itertools.accumulate(sizes)]
    cuts = [offsets.index(cut) for cut in plan.cuts]
    return [sizes[begin:end] for begin, end in itertools.pairwise([*cuts, len(sizes)])]


@given(SIZES, st.integers(4, 50_000), st.sampled_from(["ahead", "behind"]))
def test_every_tensor_is_in_one_buffer_within_the_bound_and_none_is_cut_early(sizes, buffer_bytes, selection):
    plan = plan_of(f"fixed:bytes={buffer_bytes}:selection={selection}", sizes)
    assert plan.selection == selection
    made = buffers(sizes, plan)
    assert list(itertools.chain(*made)) == sizes
    for buffer in made:
        assert buffer
        assert len(buffer) == 1 or sum(buffer) * BYTES_PER_ELEMENT <= buffer_bytes
    for buffer, following in itertools.pairwise(made):
        assert (sum(buffer) + following[0]) * BYTES_PER_ELEMENT > buffer_bytes


@given(SIZES)
def test_without_a_bound_there_is_one_buffer(sizes):
    assert buffers(sizes, plan_of("single", sizes)) == [sizes]


def test_a_tensor_larger_than_a_buffer_has_one_of_its_own():
    assert plan_of("fixed:bytes=200", [10, 1000, 10]).cuts == (0, 10, 1010)
