"""`trimtab compare`: every plan in turn, kept, summed up and shown."""

import json
import re
import signal

import pytest
from kit.run_processes import wait_until


def compare(trimtab, *arguments, patience: float = 120) -> tuple[int, str, str]:
    process = trimtab("compare", *arguments)
    output, errors = process.communicate(timeout=patience)
    return process.returncode, output, errors


def test_each_plan_runs_in_a_directory_of_its_own_and_the_table_sets_them_beside_dense(toy_job, trimtab, tmp_path):
    plans = "adaptive,dense,static:0.01/all-gather"
    code, output, errors = compare(trimtab, toy_job("--steps", "10"), "--plans", plans, "--out", "out")
    assert (code, errors) == (0, "")
    out = tmp_path / "out"
    for name, policy in (("adaptive", "Adaptive"), ("dense", "Static"), ("0.01-all-gather", "Static")):
        job = json.loads((out / name / "job.json").read_text())
        assert job["spec"]["communication"]["policy"] == policy
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary) == ["adaptive", "dense", "0.01/all-gather"]
    assert all(each["accuracy"] == 0.98 and each["seconds_to_target"] for each in summary.values())
    assert summary["dense"]["emulated"] is False
    assert "×" in output
    assert (out / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_plans_can_be_repeated_in_turns_and_the_middle_run_is_shown(toy_job, trimtab, tmp_path):
    arguments = (toy_job("--steps", "4"), "--plans", "dense,0.01/all-gather", "--out", "out", "--repeat", "3")
    code, output, errors = compare(trimtab, *arguments)
    assert (code, errors) == (0, "")
    runs = sorted(each.parent.name for each in (tmp_path / "out").glob("*/result.json"))
    assert runs == [f"{plan}{turn}" for plan in ("0.01-all-gather", "dense") for turn in ("", ".2", ".3")]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary) == ["dense", "0.01/all-gather"]
    for each in summary.values():
        assert each["seconds_to_target"] == sorted(each["all_seconds_to_target"])[1]
    assert "each plan ran 3 times" in output
    jobs = {run: json.loads((tmp_path / "out" / run / "job.json").read_text()) for run in runs}
    assert {run: job["spec"]["seed"] for run, job in jobs.items()} == {run: runs.index(run) % 3 for run in runs}
    assert compare(trimtab, *arguments, "--resume")[1].count("(kept)") == 6


@pytest.mark.slow
def test_the_target_can_be_given(toy_job, trimtab, tmp_path):
    arguments = (toy_job("--steps", "2"), "--plans", "dense", "--out", "out", "--target", "0.99")
    assert compare(trimtab, *arguments)[0] == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["dense"]["seconds_to_target"] is None


@pytest.mark.slow
def test_a_run_can_end_at_its_target_and_is_not_kept_as_a_whole_one(toy_job, trimtab, tmp_path):
    arguments = (toy_job("--forever", "--steps", "3"), "--plans", "adaptive,dense", "--out", "out", "--until-target")
    code, output, errors = compare(trimtab, *arguments)
    assert (code, errors) == (0, "")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [each["state"] for each in summary.values()] == ["target", "target"]
    assert all(each["seconds_to_target"] for each in summary.values())
    assert "runs ended at their target" in output
    assert "(kept)" in compare(trimtab, *arguments, "--resume")[1]
    process = trimtab("compare", *arguments[:-1], "--resume")
    wait_until(lambda: not (tmp_path / "out" / "adaptive" / "result.json").exists())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130


def test_ending_at_a_target_needs_one(toy_job, trimtab, tmp_path):
    job = toy_job("--steps", "2")
    job.write_text(job.read_text().replace("target: {metric: accuracy, value: 0.97}", ""))
    code, _, errors = compare(trimtab, job, "--plans", "dense", "--out", "out", "--until-target")
    assert (code, errors.splitlines()) == (
        2,
        ["trimtab: --until-target: needs a target; name one by --target or in the job's spec.target"],
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_resume_keeps_what_finished_with_the_same_inputs_and_only_that(toy_job, trimtab, tmp_path):
    out = tmp_path / "out"

    def written() -> dict[str, int]:
        return {plan: (out / plan / "result.json").stat().st_mtime_ns for plan in ("adaptive", "dense")}

    job = toy_job("--steps", "2")
    arguments = (job, "--plans", "adaptive,dense", "--out", "out")
    assert compare(trimtab, *arguments)[0] == 0
    first = written()
    assert compare(trimtab, *arguments, "--resume")[0] == 0
    assert written() == first
    (out / "dense" / "result.json").write_text('{"state": "failed"}')
    assert compare(trimtab, *arguments, "--resume")[0] == 0
    second = written()
    assert second["adaptive"] == first["adaptive"]
    assert json.loads((out / "dense" / "result.json").read_text())["state"] == "succeeded"
    toy_job("--steps", "3")
    assert compare(trimtab, *arguments, "--resume")[0] == 0
    third = written()
    assert third["adaptive"] > second["adaptive"]
    assert compare(trimtab, *arguments)[0] == 0
    assert written()["adaptive"] > third["adaptive"]


def test_a_run_that_fails_ends_the_comparison(toy_job, trimtab, tmp_path):
    job = toy_job("--die-rank", "2")
    code, _, errors = compare(trimtab, job, "--plans", "adaptive,dense", "--out", "out")
    assert code == 1
    assert errors.startswith("trimtab: adaptive: rank 2 ended with exit code 3")
    assert "the dog ate my gradient" in errors
    assert not (tmp_path / "out" / "dense").exists()


@pytest.mark.slow
def test_an_interrupt_ends_it_and_keeps_what_was_finished(toy_job, trimtab, tmp_path):
    process = trimtab("compare", toy_job("--forever"), "--plans", "adaptive,dense", "--out", "out")
    wait_until((tmp_path / "out" / "adaptive" / "started").exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume keeps the finished runs" in errors


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_torchs_own_ddp_trains_the_same_script_as_another_arm(toy_job, trimtab, tmp_path):
    job = toy_job("-m", "trimtab.workloads.digits", "--hidden", "16", "--epochs", "1", workers=2)
    job.write_text(re.sub(r"python, '[^']*'", "python", job.read_text()))
    plans = ["dense", "ddp-fp16", "ddp-powersgd"]
    code, _, errors = compare(trimtab, job, "--plans", ",".join(plans), "--out", "out", patience=380)
    assert (code, errors) == (0, "")
    losses = {}
    for plan in plans:
        lines = [json.loads(line) for line in (tmp_path / "out" / plan / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "step_seconds" in line]
        assert {line["plan"].split("/")[0] for line in steps} <= {plan, "dense-ring"}
        assert all(0 < line["compute_seconds"] < line["step_seconds"] for line in steps), "it waits for the exchange"
        losses[plan] = [line["loss"] for line in lines if line.get("event") == "evaluation"]
    assert losses["ddp-fp16"] == pytest.approx(losses["dense"], rel=0.01)
    assert losses["ddp-powersgd"] != losses["dense"]
    assert losses["ddp-powersgd"][-1] < losses["ddp-powersgd"][0]
