"""What would keep a job from running here is found before anything is made, and said of the file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trimtab.cli.main import main
from trimtab.launch.local.preflight import check, check_size, warnings
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob, load_training_job

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINER = "spec.template.spec.containers[trainer]"


def job(container=None, pod=None, template=None, metadata=None, **spec) -> TrainingJob:
    trainer = {"name": "trainer", "command": ["python"]} | (container or {})
    return TrainingJob.model_validate(
        {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "toy"} | (metadata or {}),
            "spec": {
                "workers": 2,
                "template": {"spec": {"containers": [trainer]} | (pod or {})} | (template or {}),
            }
            | spec,
        }
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a script that nobody may run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "train").write_text("#!/bin/sh\n")
    (tmp_path / "train").chmod(0o755)
    for name, text in {
        "bare.py": "print(1)\n",
        "bare": "echo 1\n",
        "windows": "#!/bin/sh\r\n",
        "lost": "#! /opt/no/python -u\n",
    }.items():
        (tmp_path / name).write_bytes(text.encode())
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("container", "complaint"),
    [
        ({"command": ["nope"]}, f"{TRAINER}.command: 'nope': no such program here; install it, or name it by its path"),
        ({"command": ["./nope"]}, f"{TRAINER}.command: './nope': no such file here; the command runs in "),
        (
            {"command": ["./train.py"]},
            f"{TRAINER}.command: './train.py': is not executable; write [python, ./train.py], or chmod +x it",
        ),
        (
            {"command": ["./bare.py"]},
            f"{TRAINER}.command: './bare.py': has no #! line, so Linux cannot execute it; write [python, ./bare.py], "
            "or begin it with such a line",
        ),
        (
            {"command": ["bare"], "env": [{"name": "PATH", "value": "."}]},
            f"{TRAINER}.command: 'bare': has no #! line, so Linux cannot execute it; write [sh, ./bare] for a shell",
        ),
        (
            {"command": ["./windows"]},
            f"{TRAINER}.command: './windows': its first line names '/bin/sh\\r', which is",
        ),
        ({"command": ["./lost"]}, f"{TRAINER}.command: './lost': its first line names '/opt/no/python', which is not"),
        ({"command": ["train.py"]}, f"{TRAINER}.command: 'train.py': no such program on the PATH, but a file of that "),
        ({"command": ["./" + "x" * 300]}, f"{TRAINER}.command: './{'x' * 158}...': no such file here; the command"),
        ({"workingDir": "x" * 300}, f"{TRAINER}.workingDir: '{'x' * 160}...': is no directory here; make it"),
        (
            {"command": ["python", "-u", "-X", "dev", "nope.py"]},
            f"{TRAINER}.command: 'nope.py': no such file here; the command runs in ",
        ),
        ({"command": ["python"], "args": ["nope.py", "train.py"]}, f"{TRAINER}.command: 'nope.py': no such file here"),
        ({"command": ["./bin"]}, f"{TRAINER}.command: './bin': is a directory; name the program in it"),
        ({"command": ["$(TOOL)"], "env": [{"name": "TOOL", "value": "./no"}]}, f"{TRAINER}.command: './no': no such"),
        (
            {"command": ["tool"], "env": [{"name": "PATH", "value": "bin"}]},
            f"{TRAINER}.command: 'tool': is bin/tool, which is not executable; chmod +x it",
        ),
        ({"workingDir": "/nowhere"}, f"{TRAINER}.workingDir: '/nowhere': is no directory here; make it, or remove"),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
            f"{TRAINER}.env[0]: 'A': valueFrom needs a cluster; give a value to run here",
        ),
        ({"envFrom": [{"secretRef": {}}]}, f"{TRAINER}.envFrom: needs a cluster; give the values in env to run here"),
        ({"env": [{"name": "RANK", "value": "3"}]}, f"{TRAINER}.env[0]: 'RANK': is set by the launcher; remove it"),
        ({"env": [{"name": "TRIMTAB_TLS_DIR"}]}, f"{TRAINER}.env[0]: 'TRIMTAB_TLS_DIR': is set by the launcher"),
        (
            {"workingdir": "."},
            "spec.template.spec.containers[0].workingdir: is no field that Kubernetes has there; did you mean "
            "workingDir?",
        ),
        ({"gpus": 8}, "spec.template.spec.containers[0].gpus: is no field that Kubernetes has there; remove it to run"),
    ],
)
def test_a_container_that_cannot_start_here_is_refused(here, container, complaint):
    with pytest.raises(UserError) as refused:
        check(job(container))
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"metadata": {"lables": {}}}, "metadata.lables: is no field that Kubernetes has there; did you mean labels?"),
        ({"pod": {"tolerations": [], "nodeSelecter": {}}}, "spec.template.spec.nodeSelecter: is no field that Kuber"),
        ({"pod": {"initContainers": [{"nam": "a"}]}}, "spec.template.spec.initContainers[0].nam: is no field that"),
        ({"template": {"metdata": {}}}, "spec.template.metdata: is no field that Kubernetes has there; did you mean"),
    ],
)
def test_a_field_that_kubernetes_does_not_have_is_refused(changes, complaint):
    with pytest.raises(UserError) as refused:
        check(job(**changes))
    assert str(refused.value).startswith(complaint)


def test_all_that_kubernetes_has_passes_through(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    for file in EXAMPLES.glob("*.yaml"):
        check(load_training_job(file))
    check(
        job(
            {"resources": {"limits": {"cpu": 1}}, "volumeMounts": [], "restartPolicyRules": []},
            pod={"affinity": {}, "resourceClaims": [], "schedulingGates": []},
            metadata={"labels": {"a": "b"}, "namespace": "n", "ownerReferences": []},
        )
    )


def test_a_script_that_may_be_run_is_run(here):
    check(job({"command": ["./train"]}))


def test_more_processes_than_memory_holds_are_refused_with_the_reason():
    check_size(job(workers=8), memory_bytes=2 * 2**30)
    with pytest.raises(UserError) as refused:
        check_size(job(workers=3, processesPerWorker=3), memory_bytes=2 * 2**30)
    assert str(refused.value) == (
        "spec.workers: '3': are 9 processes in all, and this machine's 2 GiB of memory hold 8 at most, as each takes "
        "256 MiB before it has a model; lower spec.workers or spec.processesPerWorker, or run it on a cluster"
    )


def test_what_a_cluster_alone_heeds_is_said_in_a_line_each():
    assert warnings(job()) == []
    assert warnings(job(suspend=True, managedBy="kueue.x-k8s.io/multikueue")) == [
        "spec.suspend: nothing suspends a job on one machine; it runs now",
        "spec.managedBy: 'kueue.x-k8s.io/multikueue' is of no concern on one machine; the job runs here",
    ]


def test_a_value_that_stays_as_it_is_written_is_said():
    """A cluster gives a container's variables their values in order; the launcher's and the worker's come last."""
    env = {
        "A": "1",
        "B": "$(A) $$(C)",
        "C": "$(JOB_COMPLETION_INDEX)",
        "D": "$(E)-$(D)",
    }
    said = warnings(job({"env": [{"name": name, "value": value} for name, value in env.items()]}))
    stays = "stays as it is written, because a value may only refer to variables before it in env; "
    assert [line.partition(stays)[0] for line in said] == [
        f"{TRAINER}.env[2].value: $(JOB_COMPLETION_INDEX) ",
        f"{TRAINER}.env[3].value: $(E) ",
        f"{TRAINER}.env[3].value: $(D) ",
    ]


def written(directory: Path, **spec) -> Path:
    path = directory / "job.yaml"
    path.write_text(job(**spec).model_dump_json(by_alias=True, exclude_none=True))
    return path


def test_a_job_that_asks_for_iperf3_is_refused_where_it_is_not_installed(tmp_path, monkeypatch, capsys):
    file = written(tmp_path, network={"probe": "iperf3"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["run", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"trimtab: {file}: spec.network.probe: 'iperf3': needs iperf3, which is not installed; apt-get install iperf3 "
        "(or your system's package of that name), or set it to auto\n"
    )
    assert [each.name for each in tmp_path.iterdir()] == ["job.yaml"]


def test_one_worker_runs_without_iperf3_and_a_job_that_is_suspended_says_that_it_runs(tmp_path):
    file = written(tmp_path, workers=1, suspend=True, container={"args": ["-c", "pass"]})
    done = subprocess.run(
        [sys.executable, "-m", "trimtab", "run", file, "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert done.stderr == f"trimtab: {file}: spec.suspend: nothing suspends a job on one machine; it runs now\n"
    assert done.returncode == 0
    assert done.stdout.startswith(
        "adaptive: ended well, without a step under Trimtab; a script trains by trimtab.attach and session.step\n"
    )


@pytest.mark.parametrize(
    "command",
    [["python", "train.py"], ["python", "-um", "nope"], ["python", "-c", "pass", "nope.py"], ["python", "-"]],
    ids=" ".join,
)
def test_python_is_given_a_script_a_module_or_code(here, command):
    check(job({"command": command}))


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("/nowhere/job", "cannot be written by this process in /, where it is to be made; let it write there"),
        ("/etc/hostname/job", "cannot be made, since /etc/hostname is no directory; name another path"),
        ("gs://bucket/job", "needs gcsfs, which is not installed; pip install gcsfs wherever a rank runs"),
        ("nowhere://job", "begins with a name that fsspec does not know"),
    ],
)
def test_a_place_for_checkpoints_that_no_rank_could_write_is_refused(here, monkeypatch, path, complaint):
    monkeypatch.setattr(os, "access", lambda place, mode: not (mode & os.W_OK) or os.fspath(place) != "/")
    with pytest.raises(UserError) as caught:
        check(job(checkpoint={"path": path}))
    assert str(caught.value).startswith(f"spec.checkpoint.path: '{path}': {complaint}")


def test_a_place_for_checkpoints_may_be_made_or_is_for_the_ranks_to_judge(here):
    for path in (str(here / "not" / "yet"), "relative/job", "memory://job"):
        check(job(checkpoint={"path": path}))
