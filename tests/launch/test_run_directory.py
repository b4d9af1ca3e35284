"""What a run directory shows others, and what is left in it."""

from pathlib import Path

import pytest
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.schema import RunResult
from trimtab_api.trainingjob import TrainingJob

JOB = TrainingJob.model_validate(
    {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits"},
        "spec": {
            "workers": 2,
            "template": {"spec": {"containers": [{"name": "trainer", "command": ["python", "--token", "secret"]}]}},
        },
    }
)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Of a run that goes on, in the place of one that was killed as it wrote the job down."""
    directory = RunDirectory(tmp_path)
    (tmp_path / "job.json.unfinished").touch(mode=0o644)
    directory.write_job(JOB)
    directory.tell_starting("the first step is under way")
    for folder in (directory.unfinished(""), directory.before_first_step("")):
        folder.mkdir()
    return directory


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_a_job_runs_is_for_its_user_alone(directory: RunDirectory) -> None:
    assert mode_of(directory.job) == 0o600
    directory.write_job(JOB)
    assert mode_of(directory.job) == 0o600
    assert mode_of(directory.starting) & 0o044 == 0o044


@pytest.mark.parametrize("state", ["succeeded", "target"])
def test_after_a_good_end_nothing_is_left_of_the_way_there(directory: RunDirectory, state: str) -> None:
    directory.write_result(RunResult(state))
    assert {each.name for each in directory.path.iterdir()} == {"job.json", "result.json"}


def test_after_a_failure_it_says_how_far_it_came(directory: RunDirectory) -> None:
    directory.unfinished("rank-1").touch()
    directory.write_result(RunResult("failed", "why"))
    assert directory.unfinished("rank-1").exists()
    assert directory.read_starting() == "the first step is under way"


def test_a_rank_that_never_took_a_step_is_still_seen_after_a_good_end(directory: RunDirectory) -> None:
    directory.before_first_step("rank-0").touch()
    directory.write_result(RunResult("succeeded"))
    assert directory.before_first_step("rank-0").exists()
