"""What the callbacks of frameworks do with their session, without a training: a stand-in takes its place."""

import subprocess
import sys
from types import SimpleNamespace

import pytest


class StandIn:
    """A session of one of two ranks; ``other`` is what the other rank says in an all-reduce."""

    num_ranks, is_main, other = 2, True, 1.0

    def __init__(self):
        self.loaded = []

    def all_reduce(self, value, how):
        return {"max": max, "min": min}[how](value, self.other)

    def load_exchange(self, folder):
        self.loaded.append(folder)


ENDS = """
from trimtab.integrations.lightning import TrimtabCallback

class Session:
    num_closed = 0
    def close(self):
        self.num_closed += 1

for end, error in (("on_train_end", ()), ("on_exception", (RuntimeError("out of memory"),))):
    callback, session = TrimtabCallback(), Session()
    callback.session = session
    for _ in range(2):
        getattr(callback, end)(None, None, *error)
    assert session.num_closed == 1, end
    assert callback.session is None, end
"""

REPORTS = """
from types import SimpleNamespace
import torch

class Recording:
    def report(self, **metrics):
        assert metrics == {"accuracy": 0.5}, metrics

callback = TrimtabCallback()
callback.session = Recording()
logged = {"accuracy": torch.tensor(0.5), "step": torch.tensor(3.0), "images": torch.ones(2)}
callback.on_validation_end(SimpleNamespace(callback_metrics=logged, sanity_checking=False), None)
"""


def test_lightnings_callback_closes_its_session_once_and_reports_no_field_of_every_record():
    """In a process of its own: what Lightning imports asks programs for the machine's fonts."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS + REPORTS], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_trainers_callback_resumes_where_any_rank_has_the_exchange(tmp_path, monkeypatch, is_here, is_there):
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


def test_the_trainers_callback_reports_what_is_no_field_of_every_record():
    from trimtab.integrations import transformers

    told = []
    callback = transformers.TrimtabCallback(SimpleNamespace(optimizer=object(), model_wrapped=None))
    callback.session = SimpleNamespace(report=lambda **metrics: told.append(metrics))
    callback.on_evaluate(metrics={"eval_loss": 0.5, "step": 3, "name": "x"})
    assert told == [{"eval_loss": 0.5}]
