"""What a script that another launcher started trains by, where it says little or says it wrong."""

import sys
from pathlib import Path

import pytest
import torch
import trimtab
from torch import nn
from trimtab.launch.joining.configuration import Configuration
from trimtab.run_files.layout import RunDirectory
from trimtab_api.errors import UserError


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("train.py", "train"),
        ("src/01_Train.py", "run-01-train"),
        ("2b.py", "run-2b"),
        ("train.v2.py", "train-v2"),
        ("训练.py", "training"),
        ("", "training"),
        ("a" * 51 + "_b.py", "a" * 51),
    ],
)
def test_a_script_of_any_name_has_a_job_of_defaults(script: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--epochs", "3"])
    assert Configuration().load().metadata.name == name


@pytest.mark.parametrize("argument", ["--token=hunter2", "x" * 200_000, "\ud800"])
def test_what_a_script_is_called_with_is_neither_checked_nor_written_down(
    argument: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", argument])
    directory = RunDirectory(tmp_path)
    directory.write_job(Configuration().load())
    assert argument[:10] not in directory.job.read_text()


def test_a_mistake_shows_in_a_single_process() -> None:
    model = nn.Linear(2, 2)
    for wrong in ({"plan": "0.01/nothing"}, {"job": "nowhere.yaml"}):
        with pytest.raises(UserError, match=next(iter(wrong.values()))):
            trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), **wrong)
    trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), plan="0.01/all-gather")
