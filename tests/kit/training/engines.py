"""The engine beneath a session, for tests of the engine: nothing else in tests reaches into a session."""

from __future__ import annotations

from trimtab.engine.step_engine import StepEngine
from trimtab.session.session import Session


def engine_of(session: Session) -> StepEngine:
    """What carries out the session's steps; to read what it holds there is `Session.debug_state`."""
    engine = session._engine  # noqa: SLF001 - here alone
    assert isinstance(engine, StepEngine), "a single process has no such engine"
    return engine
