"""A directory serves one run at a time."""

import json

import pytest
from kit.run_processes import wait_until


def refusal(process) -> str:
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, "")
    return errors


def files_of(directory) -> set[tuple[str, int]]:
    """Every file by its name and what it is on the disk: one that was made anew is another.

    Ranks take their marks away at their first step, so these are left out.
    """
    files = [each for each in directory.rglob("*") if each.parent.name != "before-first-step"]
    return {(str(each.relative_to(directory)), each.stat().st_ino) for each in files}


@pytest.mark.parametrize(
    "second",
    [
        ["run", "job.yaml", "--out", "out"],
        ["compare", "job.yaml", "--out", "out", "--plans", "dense"],
        ["run", "job.yaml", "--out", "here/../out"],
    ],
)
def test_a_second_run_is_refused_and_the_first_goes_on(toy_job, trimtab, tmp_path, second):
    (tmp_path / "here").mkdir()
    first = trimtab("run", toy_job("--forever"), "--out", "out", "--plan", "dense")
    wait_until((tmp_path / "out" / "started").exists)
    before = files_of(tmp_path / "out")
    assert refusal(trimtab(*second)) == (
        f"trimtab: --out: '{second[second.index('--out') + 1]}': is in use by the run of process {first.pid}; "
        f"wait for it to end or `kill {first.pid}`, or name another directory\n"
    )
    assert first.poll() is None
    assert before <= files_of(tmp_path / "out")


def test_a_comparison_holds_its_directory_and_those_of_its_runs(toy_job, trimtab, tmp_path):
    comparison = trimtab("compare", toy_job("--forever"), "--plans", "dense", "--out", "out")
    wait_until((tmp_path / "out" / "dense" / "started").exists)
    for taken in ("out", "out/dense"):
        assert f"is in use by the run of process {comparison.pid};" in refusal(
            trimtab("run", "job.yaml", "--out", taken)
        )
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["plans"] == ["dense"]


@pytest.mark.slow
def test_a_run_that_was_killed_leaves_its_directory_free(toy_job, trimtab, tmp_path):
    first = trimtab("run", toy_job("--forever"), "--out", "out")
    wait_until((tmp_path / "out" / "started").exists)
    first.kill()
    first.wait(timeout=30)
    second = trimtab("run", toy_job("--steps", "1"), "--out", "out")
    second.communicate(timeout=60)
    assert second.returncode == 0


def test_a_run_ends_well_though_its_status_address_is_gone(toy_job, trimtab, tmp_path):
    run = trimtab("run", toy_job("--steps", "100"), "--out", "out")
    wait_until((tmp_path / "out" / "started").exists)
    wait_until((tmp_path / "out" / "status.address").exists)
    (tmp_path / "out" / "status.address").unlink()
    _, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (0, "")
