"""All that a session carries, as torch.distributed.checkpoint takes it: an object with its protocol `Stateful`.

    dcp.save({"model": model.state_dict(), "session": session.stateful}, checkpoint_id=folder)

torch keeps one of the values that have the same name on several ranks. So each rank's part has a name of its own. It
asks for the same names when it loads, and a tensor must have its size by then. So what has another size in every step,
such as what schemes have learned, is one value beside the residual, which has the size of the model.
"""

from __future__ import annotations

from typing import Any

from trimtab_api.errors import UserError

from trimtab.checkpoint.shards import copied
from trimtab.checkpoint.state_tree import NotPlainError, put_together, take_apart
from trimtab.session.checkpoints.job_state import JobState
from trimtab.transport.object_collectives import raise_together

_FIELD = "session.stateful"
_ELSEWHERE = "another number of ranks goes on by spec.checkpoint or session.save_exchange"


class RankState:
    """One rank's part of a session's state, without model, optimizers, scheduler and ``extra_state``."""

    def __init__(self, state: JobState) -> None:
        self._state = state

    @property
    def _names(self) -> tuple[str, str]:
        """The names of what says how many ranks there are, and of this rank's part."""
        rank, size = self._state.rank, self._state.num_ranks
        return f"made by {size} ranks ({_ELSEWHERE})", f"rank {rank} of {size}"

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's part, in plain data and tensors; every rank calls it together, between two steps.

        The residual is the live one, as tensors of a model's ``state_dict`` are.

        Raises:
            UserError: A backward pass has run whose step has not been taken.
        """
        state = self._state
        if state.is_mid_step:
            raise UserError("comes between two steps; save after the step", field=_FIELD)
        state.settle()
        own = {name: value for name, value in state.own().items() if name != "extra_state"}
        own |= {"position": state.position.to_state(), "controller": state.control.state_dict()}
        count, part = self._names
        residual = {}
        if own["engine"] is not None:
            own["engine"] = dict(own["engine"])
            residual = {"residual": own["engine"].pop("residual")}
        rest = copied(take_apart(own))
        return {count: state.num_ranks, part: {**residual, "rest": (rest.skeleton, rest.tensors)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned on this rank; every rank calls it together, before the first step.

        The model and the optimizers of that step are loaded before it.

        Raises:
            UserError: It is the state of another rank, number of ranks or model, or comes too late; raised on every
                rank.
        """
        own: dict[str, Any] = {}
        mistake: UserError | None = None
        try:
            own = self._checked(state)
        except UserError as error:
            mistake = error
        engine = self._state.engine
        raise_together(None if engine is None else engine.group, mistake)
        self._state.restore_session(own)

    def _checked(self, state: dict[str, Any]) -> dict[str, Any]:
        count, part = self._names
        if self._state.steps.num or self._state.loops.have_begun:
            raise UserError("is loaded before the first batch and the first step", field=_FIELD)
        if not isinstance(state, dict) or count not in state or part not in state:
            raise UserError(f"is no state of {part}; {_ELSEWHERE}", field=_FIELD)
        try:
            own = put_together(*state[part]["rest"])
        except (NotPlainError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"is no state of a session ({error})", field=_FIELD) from None
        engine = self._state.engine
        if engine is not None:
            own["engine"] = {**own["engine"], "residual": state[part].get("residual")}
            if own["engine"]["tensors"] != engine.flat_buffers.tensors:
                raise UserError(
                    "is of another model or memory format; load the one that it was saved with", field=_FIELD
                )
        return dict(own)
