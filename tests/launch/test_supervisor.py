"""What becomes of a run's processes, on one machine and in a pod alike: who may end, who fails, and what is said."""

import io
import os
from contextlib import suppress
from pathlib import Path

import pytest
from kit.run_processes import wait_until
from trimtab.launch.processes.children import Children
from trimtab.launch.processes.interrupts import Interrupted
from trimtab.launch.processes.logs import LogFiles, LogForwarder
from trimtab.launch.processes.supervisor import Ending, Supervisor, describe_failure
from trimtab.launch.processes.trainer_command import Process
from trimtab.launch.sidecars import Sidecars
from trimtab.run_files.layout import RunDirectory


@pytest.fixture
def directory(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.prepare()
    return directory


@pytest.fixture(params=["log files", "a container's log"])
def logs(request, directory):
    if request.param == "log files":
        yield LogFiles(directory)
    else:
        with LogForwarder(io.BytesIO(), named=True) as forwarder:
            yield forwarder


@pytest.fixture
def supervisor(directory, logs):
    with Supervisor(directory, logs, poll_seconds=0.01, grace=5.0) as supervisor:
        yield supervisor


def shell(script):
    return Process(["sh", "-c", script], os.environ)


STAYS = shell("exec sleep 600")


def nothing(ended):
    """Nobody ends the attempt but its processes."""


@pytest.mark.parametrize(("error", "saves"), [(Interrupted, True), (RuntimeError, False)])
def test_ranks_have_all_the_grace_of_their_pod_only_where_the_pod_is_told_to_end(directory, logs, error, saves):
    saved = directory.path / "saved"
    script = f"trap 'sleep 0.5; touch {saved}; exit 1' TERM; touch {directory.path}/ready; while :; do sleep 0.1; done"
    with suppress(error), Supervisor(directory, logs, 0.01, 0.05, grace_when_interrupted=60.0) as supervisor:
        supervisor.start("rank-0", shell(script))
        wait_until((directory.path / "ready").exists)
        raise error
    assert saved.exists() is saves


def test_an_attempt_whose_ranks_have_all_succeeded_has_though_its_monitors_go_on(supervisor):
    supervisor.start("monitor-0", STAYS)
    supervisor.start("rank-0", shell("exit 0"))
    supervisor.start("rank-1", shell("exit 0"))
    assert supervisor.wait(nothing) == Ending("succeeded")
    assert supervisor.children.running == {"monitor-0"}


@pytest.mark.parametrize(("script", "how"), [("exit 3", "exit code 3"), ("kill -KILL $$", "signal SIGKILL")])
def test_a_rank_that_fails_ends_the_attempt_of_all(supervisor, script, how):
    supervisor.start("rank-0", STAYS)
    supervisor.start("rank-1", shell(script))
    ending = supervisor.wait(nothing)
    assert (ending.state, [(each.name, each.how) for each in ending.failed]) == ("failed", [("rank-1", how)])


@pytest.mark.parametrize("script", ["exit 0", "exit 1", "kill -KILL $$", "exit 2"])
def test_a_monitor_that_ends_is_started_again_and_training_goes_on(supervisor, directory, tmp_path, script):
    """The rank ends only when a second monitor has come."""
    seen = tmp_path / "seen"
    os.mkfifo(seen)
    directory.started.touch()
    supervisor.start("rank-0", shell(f"read line < {seen}"))
    supervisor.start("monitor-0", shell(f"if mkdir {tmp_path}/first; then {script}; fi; echo here > {seen}; sleep 600"))
    assert supervisor.wait(nothing) == Ending("succeeded")
    assert supervisor.children.running == {"monitor-0"}


def test_a_monitor_that_names_a_mistake_before_the_first_step_has_failed(supervisor):
    supervisor.start("rank-0", STAYS)
    supervisor.start("monitor-0", shell("exit 2"))
    assert [each.name for each in supervisor.wait(nothing).failed] == ["monitor-0"]


def test_training_goes_on_without_its_status_server(supervisor, directory, tmp_path):
    """The rank ends only when it is seen that the server has."""
    seen = tmp_path / "seen"
    os.mkfifo(seen)

    def check(ended):
        if any(each.name == "status" for each in ended):
            seen.write_text("it ended\n")

    supervisor.start("rank-0", shell(f"read line < {seen}"))
    sidecars = Sidecars(supervisor.children, directory, os.environ)
    sidecars.start_status(None, "unix:somewhere", command=lambda argv: ["sh", "-c", "exit 1"])
    assert supervisor.wait(check) == Ending("succeeded")


def test_what_the_check_finds_comes_before_a_failure(supervisor):
    supervisor.start("rank-0", shell("exit 1"))
    found = Ending("failed", "the emulated network ended")
    assert supervisor.wait(lambda ended: found if ended else None) is found


def test_the_rank_that_others_only_lost_is_awaited_and_named(supervisor, logs, tmp_path):
    seen = tmp_path / "seen"
    os.mkfifo(seen)

    def check(ended):
        if any(each.name == "rank-0" for each in ended):
            seen.write_text("it ended\n")

    supervisor.start("rank-0", shell("echo CommunicationError: rank 1 closed the connection; exit 1"))
    supervisor.start("rank-1", shell(f"read line < {seen}; echo the dog ate my gradient; exit 7"))
    ending = supervisor.wait(check)
    assert [each.name for each in ending.failed] == ["rank-0", "rank-1"]
    head, *lines = describe_failure(ending.failed, logs).splitlines()
    assert head.startswith("rank 1 ended with exit code 7; it")
    assert lines == ["    the dog ate my gradient"]


def test_a_remark_says_more_of_how_it_failed(supervisor, logs):
    supervisor.start("rank-0", shell("exit 9"))
    told = describe_failure(supervisor.wait(nothing).failed, logs, ": out of memory")
    assert told.startswith("rank 0 ended with exit code 9: out of memory")
    assert "last said" not in told


def test_the_address_of_the_status_goes_with_the_sidecars_that_wrote_it(directory):
    with Children() as children, Sidecars(children, directory, os.environ) as sidecars:
        sidecars.start_status(None, "unix:somewhere", command=lambda argv: STAYS.argv)
        assert directory.status_address.read_text() == "unix:somewhere\n"
    assert not directory.status_address.exists()


def test_a_worker_that_serves_no_status_leaves_the_address_of_the_one_that_does(directory):
    directory.tell_status_address("unix:of another worker")
    with Children() as children, Sidecars(children, directory, os.environ):
        pass
    assert directory.status_address.exists()


def test_leaving_ends_what_runs(directory, logs):
    with Supervisor(directory, logs, poll_seconds=0.01) as supervisor:
        supervisor.start("rank-0", STAYS)
    assert supervisor.children.running == set()


def test_a_container_s_log_says_which_rank_printed(directory):
    output = io.BytesIO()
    with LogForwarder(output, named=True) as logs, Supervisor(directory, logs, poll_seconds=0.01) as supervisor:
        supervisor.start("rank-3", shell("echo step 1; printf 'step 2'"))
        supervisor.wait(nothing)
        logs.drain(30)
    assert output.getvalue() == b"[rank 3] step 1\n[rank 3] step 2\n"


def test_a_log_that_cannot_be_written_ends_no_rank(directory):
    directory.log("rank-0").symlink_to("/dev/full")
    with LogFiles(directory) as logs, Supervisor(directory, logs, poll_seconds=0.01) as supervisor:
        supervisor.start("rank-0", shell("set -e; echo step 1; echo step 2"))
        supervisor.start("rank-1", shell("echo step 1"))
        assert supervisor.wait(nothing) == Ending("succeeded")
    assert directory.log("rank-1").read_text() == "step 1\n"


def test_a_rank_whose_command_hides_its_failure_has_failed(supervisor, logs, directory):
    directory.unfinished("rank-1").parent.mkdir()
    mark = directory.unfinished("rank-1")
    supervisor.start("rank-0", STAYS)
    supervisor.start("rank-1", shell(f"(touch {mark}; echo the dog ate my gradient; exit 7) | cat"))
    ending = supervisor.wait(nothing)
    assert [each.name for each in ending.failed] == ["rank-1"]
    head, *lines = describe_failure(ending.failed, logs).splitlines()
    assert head.startswith("rank 1 ended with exit code 1, which its command hid (a pipe such as `| tee` needs")
    assert lines == ["    the dog ate my gradient"]


def test_a_mark_of_an_attempt_before_fails_no_rank(supervisor, directory):
    directory.unfinished("rank-0").parent.mkdir()
    directory.unfinished("rank-0").touch()
    supervisor.start("rank-0", shell("exit 0"))
    assert supervisor.wait(nothing) == Ending("succeeded")


def test_what_a_rank_leaves_running_ends_when_the_rank_has(supervisor, directory):
    supervisor.start("rank-0", shell(f"sleep 600 & echo $! > {directory.path}/left"))
    assert supervisor.wait(nothing) == Ending("succeeded")
    left = int((directory.path / "left").read_text())
    wait_until(lambda: not is_running(left))


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
