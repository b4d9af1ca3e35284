"""Batches that trials run through: each comes again as the loader made it, whatever a loop does to it."""

import random

from hypothesis import given
from hypothesis import strategies as st
from trimtab.data.replay import Replay


def drawing():
    """Batches, each of which holds what its drawing took from a generator."""
    for number in range(20):
        yield {"number": [number], "drawn": [random.random()]}


@given(trials=st.lists(st.integers(1, 5), max_size=3), before=st.integers(0, 3))
def test_batches_of_trials_come_again_as_they_were_drawn(trials, before):
    random.seed(1)
    expected = [(*batch["number"], *batch["drawn"]) for batch in drawing()]
    after = random.random()
    random.seed(1)
    replay = Replay(drawing(), 20)
    seen = []

    def take():
        batch = replay.next()
        taken = batch.pop("number").pop(), batch.pop("drawn").pop()  # the loop takes it to pieces
        replay.stepped(in_trial=False)
        return taken

    for _ in range(before):
        seen.append(take())
    for iterations in trials:
        replay.mark()
        assert [take() for _ in range(iterations)] == expected[before : before + iterations]
        replay.rewind()
    while len(seen) < 20:
        seen.append(take())
    assert seen == expected
    assert random.random() == after
