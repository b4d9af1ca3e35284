"""After a round, ranks go on from the smallest loss scale, whichever rank has it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch.amp.grad_scaler import GradScaler
from trimtab.engine.optimizer.loss_scale import LossScale


@given(st.lists(st.tuples(st.sampled_from([1.0, 256.0, 65536.0]), st.integers(0, 100).map(float)), min_size=1))
def test_the_smallest_scale_and_its_fewest_steps_are_agreed_on(everyones: list[tuple[float, float]]) -> None:
    scale = LossScale(GradScaler("cpu"))
    scale.agree(everyones)
    assert scale.own() == min(everyones)
