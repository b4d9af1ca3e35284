"""What a pod is told, and what its ranks get of it."""

import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.certificates import Authority
from trimtab.launch.environment.job_secret import secret_of
from trimtab.launch.pod import worker as worker_module
from trimtab.launch.pod.job_file import job_file
from trimtab.launch.pod.pod import Pod, grace_seconds, num_threads
from trimtab.launch.pod.termination_message import LIMIT, num_oom_kills, shorten
from trimtab.launch.pod.worker import Worker, kernel_cache
from trimtab.run_files.layout import RunDirectory
from trimtab_api.errors import UserError
from trimtab_api.input_files import private_path_error
from trimtab_api.trainingjob import load_job_file

TOLD = {
    "JOB_COMPLETION_INDEX": "2",
    "TRIMTAB_POD_IP": "10.244.0.7",
    "TRIMTAB_JOB": "/var/run/trimtab/job/job.json",
    "TRIMTAB_RUN_DIR": "/var/run/trimtab/run",
    "MASTER_ADDR": "digits-0.digits.default.svc",
    "MASTER_PORT": "29500",
}


def load(tmp_path, processes=1, of_pod=None, **container):
    trainer = {"name": "trainer", "command": ["python", "train.py"], **container}
    template = {"spec": {"containers": [trainer], **({"resources": of_pod} if of_pod else {})}}
    spec = {"workers": 3, "processesPerWorker": processes, "template": template}
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"}}
    (tmp_path / "job.json").write_text(json.dumps(head | {"spec": spec}))
    return load_job_file(tmp_path / "job.json")


def test_ranks_of_different_attempts_have_different_secrets(tmp_path):
    certificates = str(Authority.new().issue(tmp_path / "tls"))
    launch = SimpleNamespace(secret="")
    variables = [{"TRIMTAB_TLS_DIR": certificates, "TRIMTAB_ATTEMPT": attempt} for attempt in ("0", "0", "1")]
    first, same, next_attempt = (secret_of(launch, each) for each in variables)
    assert first == same != next_attempt


@pytest.mark.parametrize(("period", "seconds"), [(None, 25), (600, 595), (30, 25), (10, 8), (0, 0)])
def test_ranks_have_the_grace_of_their_pod_less_what_the_worker_needs(tmp_path, period, seconds):
    job = load(tmp_path)
    if period is not None:
        job.spec.template["spec"]["terminationGracePeriodSeconds"] = period
    assert grace_seconds(job) == seconds


def test_a_pod_knows_its_worker_and_where_worker_0_is():
    pod = Pod.read(TOLD)
    assert (pod.worker, pod.address, pod.master_host, pod.master_port) == (
        2,
        "10.244.0.7",
        "digits-0.digits.default.svc",
        29500,
    )


def test_gradients_cross_the_pods_own_device_unless_the_container_says_otherwise():
    assert Pod.read(TOLD).interface == "eth0"
    assert Pod.read(TOLD | {"GLOO_SOCKET_IFNAME": "ib0"}).interface == "ib0"


def test_a_pod_without_an_ipv4_address_is_refused_at_once():
    with pytest.raises(UserError, match=r"^TRIMTAB_POD_IP: 'fd00:10::7': is an IPv6 address, .* IPv4 alone"):
        Pod.read(TOLD | {"TRIMTAB_POD_IP": "fd00:10::7"})


@pytest.mark.parametrize("name", TOLD)
def test_a_missing_variable_is_named(name):
    with pytest.raises(UserError, match=f"^{name}: is not set; this command is the entry of a pod"):
        Pod.read({key: value for key, value in TOLD.items() if key != name})


def test_a_worker_that_the_job_does_not_have_is_refused(tmp_path):
    load(tmp_path)
    pod = Pod.read(TOLD | {"TRIMTAB_JOB": str(tmp_path / "job.json"), "JOB_COMPLETION_INDEX": "3"})
    with pytest.raises(UserError, match="JOB_COMPLETION_INDEX: '3': is not a worker of a job with 3"):
        pod.load_job()


@pytest.mark.parametrize(("workers", "is_copied"), [("3", False), ("5", True)])
def test_ranks_read_the_workers_of_this_attempt(tmp_path, workers, is_copied):
    load(tmp_path)
    told = {"TRIMTAB_JOB": str(tmp_path / "job.json"), "TRIMTAB_WORKERS": workers}
    pod = Pod.read(TOLD | told)
    job = pod.load_job()
    with job_file(pod, job) as file:
        assert load_job_file(file).spec == job.spec
        assert job.spec.workers == int(workers)
        assert (file != pod.job_file) == is_copied
        assert file.stat().st_mode & 0o077 == 0 or not is_copied, "its commands may hold what is not for others"
    assert file.exists() != is_copied


@pytest.mark.parametrize(
    ("resources", "processes", "expected"),
    [
        ({"requests": {"cpu": "1"}}, 1, 1),
        ({"requests": {"cpu": "2500m"}}, 1, 3),
        ({"requests": {"cpu": 8}}, 4, 2),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}, 1, 4),
        ({"requests": {"cpu": "64"}}, 1, 16),
        ({"requests": {"memory": "1Gi"}}, 1, 16),
    ],
)
def test_a_container_without_a_limit_of_cpus_has_its_request_rounded_up(tmp_path, resources, processes, expected):
    assert num_threads(load(tmp_path, processes, resources=resources), num_cores=16) == expected


@pytest.mark.parametrize(
    ("of_pod", "resources", "expected"),
    [
        ({"limits": {"cpu": "4"}}, {}, 4),
        ({"requests": {"cpu": "1500m"}}, {}, 2),
        ({"limits": {"cpu": "4"}}, {"limits": {"cpu": "2"}}, 2),
        ({"limits": {"cpu": "4"}}, {"requests": {"cpu": "1"}}, 4),
    ],
)
def test_what_a_container_does_not_say_of_cpus_its_pod_may(tmp_path, of_pod, resources, expected):
    assert num_threads(load(tmp_path, of_pod=of_pod, resources=resources), num_cores=16) == expected


@pytest.mark.parametrize(
    ("limit", "processes", "expected"),
    [
        (None, 1, 16),
        (None, 4, 4),
        ("2", 1, 2),
        ("500m", 1, 1),
        ("3.5", 1, 3),
        ("3500000u", 1, 3),
        (8, 4, 2),
        ("64", 1, 16),
    ],
)
def test_a_rank_has_its_share_of_the_containers_cpus(tmp_path, limit, processes, expected):
    resources = {} if limit is None else {"limits": {"cpu": limit}}
    assert num_threads(load(tmp_path, processes, resources=resources), num_cores=16) == expected


def test_a_termination_message_keeps_its_first_line_and_its_end():
    assert shorten("short") == b"short"
    message = "rank 0 ended with exit code 1; it last said\n" + "x" * 9000 + "\nthe end"
    short = shorten(message)
    assert len(short) == LIMIT
    assert short.startswith(b"rank 0 ended with exit code 1; it last said\n...\nx")
    assert short.endswith(b"x\nthe end")


@pytest.mark.parametrize(
    "text", ["low 0\nhigh 0\noom 3\noom_kill 2\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"]
)
def test_both_control_groups_tell_of_processes_killed_for_memory(tmp_path, text):
    (tmp_path / "counter").write_text(text)
    assert num_oom_kills((tmp_path / "missing", tmp_path / "counter")) == 2


def test_a_machine_that_does_not_count_has_killed_nobody(tmp_path):
    assert num_oom_kills((tmp_path / "missing",)) == 0


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A directory of compiled kernels, as an image has one."""
    folder = tmp_path / "shipped"
    (folder / "cpu_0").mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    (folder / "cpu_0" / "add.nbi").write_bytes(b"compiled")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return folder


def test_kernels_that_a_read_only_image_ships_are_used_from_a_private_copy(shipped, monkeypatch):
    environ = {"NUMBA_CACHE_DIR": str(shipped)}
    with kernel_cache(environ) as used:
        assert used == environ  # it may be written to
    assert (shipped / "cpu_0/add.nbi").exists()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with kernel_cache(environ) as used, kernel_cache(environ) as of_another:
        copy = Path(used["NUMBA_CACHE_DIR"])
        assert (copy / "cpu_0/add.nbi").read_bytes() == b"compiled"
        assert private_path_error(copy) is None
        assert copy.stat().st_mode & 0o777 == 0o700
        assert of_another != used, "nobody can foresee it"
    assert list(shipped.with_name("tmp").iterdir()) == [], "it goes with the ranks"


def test_without_shipped_kernels_the_ranks_keep_their_own(shipped):
    with kernel_cache({}) as used:
        own = Path(used["NUMBA_CACHE_DIR"])
        assert list(own.iterdir()) == []
        assert private_path_error(own) is None
        (own / "add.nbi").write_bytes(b"compiled")
    assert not own.exists()


def test_kernels_that_others_may_write_are_not_run(shipped, capsys):
    for path in (shipped, shipped / "cpu_0", shipped / "cpu_0" / "add.nbi"):
        mode = path.stat().st_mode
        path.chmod(0o777)
        with kernel_cache({"NUMBA_CACHE_DIR": str(shipped)}) as used:
            own = Path(used["NUMBA_CACHE_DIR"])
            assert own != shipped
            assert list(own.iterdir()) == []
        assert f"{path} may be written by others (mode 777)); kernels are compiled again" in capsys.readouterr().out
        path.chmod(mode)
    (shipped / "cpu_0" / "link.nbi").symlink_to("/etc/passwd")
    with kernel_cache({"NUMBA_CACHE_DIR": str(shipped)}) as used:
        assert used != {"NUMBA_CACHE_DIR": str(shipped)}
    assert "is a symbolic link" in capsys.readouterr().out


def test_worker_0_keeps_what_the_attempt_before_recorded(tmp_path, monkeypatch):
    load(tmp_path)
    told = TOLD | {"JOB_COMPLETION_INDEX": "0", "TRIMTAB_RUN_DIR": str(tmp_path / "team/digits")}
    pod = Pod.read(told | {"TRIMTAB_JOB": str(tmp_path / "job.json")})
    directory = RunDirectory(pod.run_directory)

    def train(worker, argv):
        with pytest.raises(UserError, match="is in use by pod "), directory.held():
            pass
        directory.metrics.write_text("of an attempt\n")
        return 1, "failed"

    monkeypatch.setattr(Worker, "_train", train)
    for _ in range(2):
        Worker(pod, pod.load_job(), told).run(["python"])
    assert (directory.attempts / "0/metrics.jsonl").read_text() == "of an attempt\n"


def test_worker_0_waits_for_the_pod_before_to_let_go(tmp_path, monkeypatch):
    load(tmp_path)
    told = TOLD | {"JOB_COMPLETION_INDEX": "0", "TRIMTAB_RUN_DIR": str(tmp_path / "run")}
    pod = Pod.read(told | {"TRIMTAB_JOB": str(tmp_path / "job.json")})
    before = ExitStack()
    before.enter_context(RunDirectory(pod.run_directory).held("pod before"))
    monkeypatch.setattr(worker_module, "pause", lambda seconds: before.close())
    monkeypatch.setattr(Worker, "_train", lambda worker, argv: (0, ""))
    assert Worker(pod, pod.load_job(), told).run(["python"]) == (0, "")
