"""What the callbacks of frameworks do with their session, without a training: a stand-in takes its place."""

from types import SimpleNamespace

import pytest


class StandIn:
    """A session of one of two ranks; ``other`` is what the other rank says in an all-reduce."""

    num_ranks, is_main, other = 2, True, 1.0

    def __init__(self):
        self.num_closed, self.loaded = 0, []

    def close(self):
        self.num_closed += 1

    def all_reduce(self, value, how):
        return {"max": max, "min": min}[how](value, self.other)

    def load_exchange(self, folder):
        self.loaded.append(folder)


@pytest.mark.parametrize("end", ["on_train_end", "on_exception"])
def test_lightnings_callback_closes_its_session_once_however_training_ends(end):
    pytest.importorskip("lightning")
    from trimtab.integrations.lightning import TrimtabCallback

    callback, session = TrimtabCallback(), StandIn()
    callback.session = session
    error = [RuntimeError("out of memory")] if end == "on_exception" else []
    for _ in range(2):
        getattr(callback, end)(None, None, *error)
    assert session.num_closed == 1
    assert callback.session is None


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_trainers_callback_resumes_where_any_rank_has_the_exchange(tmp_path, monkeypatch, is_here, is_there):
    pytest.importorskip("transformers")
    from trimtab.integrations import transformers

    session = StandIn()
    session.other = float(is_there)
    monkeypatch.setattr(transformers, "attach", lambda *_, **__: session)
    folder = tmp_path / "checkpoint-5" / "trimtab"
    if is_here:
        folder.mkdir(parents=True)
    callback = transformers.TrimtabCallback(SimpleNamespace(optimizer=object(), model_wrapped=None))
    callback.on_train_begin(SimpleNamespace(output_dir=str(tmp_path)), SimpleNamespace(global_step=5))
    assert session.loaded == ([folder] if is_here or is_there else [])
