"""Following a run: its status server may end before it has told anything, and the run's end is known all the same."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest
from trimtab.status import following
from trimtab.status.following import LostError, follow
from trimtab_api.rpc.channels import SERVER_OPTIONS
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc

RUNNING = status_pb2.Status(job="digits", state=status_pb2.STATE_RUNNING)
SUCCEEDED = status_pb2.Status(job="digits", state=status_pb2.STATE_SUCCEEDED)


class Server(status_pb2_grpc.TrainerStatusServicer):
    """Says it runs; what happens when it is asked for more is the test's."""

    def __init__(self, watch: Callable[[grpc.ServicerContext], Iterator[status_pb2.Status]], now=RUNNING) -> None:
        self._watch = watch
        self._now = now

    def GetStatus(self, request, context):  # noqa: N802
        return self._now

    def WatchStatus(self, request, context):  # noqa: N802
        return self._watch(context)


@pytest.fixture
def serve(run):
    """Starts a server in this process, and tells its address in the run directory."""
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor() as pool:  # tmp_path is too long for a socket
        servers = []

        def start(watch, now=RUNNING):
            server = grpc.server(pool, options=SERVER_OPTIONS)
            address = f"unix:{directory}/{len(servers)}"
            server.add_insecure_port(address)
            status_pb2_grpc.add_TrainerStatusServicer_to_server(Server(watch, now), server)
            server.start()
            servers.append(server)
            run.directory.tell_status_address(address)

        yield start
        for server in servers:
            server.stop(0).wait()


def is_cut(context):
    context.abort(grpc.StatusCode.UNAVAILABLE, "Broken pipe")


def states(run, **more):
    return [each.state for each in follow(run.directory, interval=0.1, **more)]


def test_a_run_without_a_server_is_followed_by_its_files(run):
    with run.directory.held():
        run.directory.tell_starting("all ranks have met")
        statuses = follow(run.directory, interval=0.01)
        assert next(statuses).message == "all ranks have met"
        run.step(4)
        assert next(statuses).step == 5
        run.end("succeeded")
    *_, last = statuses
    assert (last.state, last.step) == (status_pb2.STATE_SUCCEEDED, 5)


def test_a_run_without_a_server_that_is_killed_is_lost(run):
    with run.directory.held():
        statuses = follow(run.directory, interval=0.01)
        next(statuses)
    with pytest.raises(LostError, match="the run was killed"):
        list(statuses)


def test_a_run_whose_server_starts_later_is_followed_by_it(run, serve):
    with run.directory.held():
        statuses = follow(run.directory, interval=0.01)
        assert next(statuses).state == status_pb2.STATE_STARTING
        serve(lambda context: iter([SUCCEEDED]))
        *_, last = statuses
    assert last == SUCCEEDED


def test_a_connection_that_is_lost_as_the_run_ends_is_no_failure(run, serve):
    def watch(context):
        yield RUNNING
        run.step(299, "0.01/all-gather", 1)
        run.end("succeeded")
        is_cut(context)

    serve(watch)
    *_, last = follow(run.directory, interval=0.1)
    assert (last.job, last.state, last.step) == ("digits", status_pb2.STATE_SUCCEEDED, 300)


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        (("succeeded",), status_pb2.STATE_SUCCEEDED),
        (("target",), status_pb2.STATE_SUCCEEDED),
        (("failed", "rank 2 ended with exit code 3"), status_pb2.STATE_FAILED),
        (("interrupted", "stopped by Ctrl-C or SIGTERM"), status_pb2.STATE_FAILED),
    ],
)
def test_a_server_that_went_between_the_first_answer_and_the_watch_has_not_taken_the_end_along(
    run, serve, ended, state
):
    def watch(context):
        run.end(*ended)
        return is_cut(context)

    serve(watch)
    assert states(run) == [state]


def test_a_server_that_went_before_it_was_called_has_not_either(run):
    run.directory.tell_status_address("unix:/nowhere/status")
    run.end("failed", "rank 2 ended with exit code 3")
    (last,) = follow(run.directory, interval=0.1)
    assert (last.state, last.message) == (status_pb2.STATE_FAILED, "rank 2 ended with exit code 3")


def test_a_server_that_knows_of_the_end_is_asked_once(run, serve):
    serve(is_cut, now=SUCCEEDED)
    assert states(run) == [status_pb2.STATE_SUCCEEDED]


def test_a_restart_is_followed_to_its_own_server(run, serve):
    def second(context):
        yield RUNNING
        yield SUCCEEDED

    def first(context):
        yield RUNNING
        serve(second)
        is_cut(context)

    serve(first)
    assert states(run) == [status_pb2.STATE_RUNNING, status_pb2.STATE_RUNNING, status_pb2.STATE_SUCCEEDED]


def test_a_server_that_ends_with_nothing_known_is_waited_for_so_long_and_said(run, serve):
    serve(is_cut)
    with pytest.raises(LostError, match=r"no more status from unix:/.*: Broken pipe"):
        states(run, patience=0.0)


def test_a_run_whose_launcher_was_killed_is_lost_at_once(run):
    killed = subprocess.Popen(["true"])
    killed.wait()
    run.directory.lock.write_text(f"{killed.pid}\n")
    run.directory.tell_status_address("unix:/nowhere")
    with pytest.raises(LostError, match=f"was killed: its launcher, process {killed.pid}, is gone; see .*/run/logs"):
        states(run, patience=3600.0)
    run.end("succeeded")
    assert states(run, patience=3600.0) == [status_pb2.STATE_SUCCEEDED]


def test_a_launcher_that_lives_or_holds_its_lock_elsewhere_is_not_lost(run):
    assert run.directory.lost_launcher() is None  # a pod's directory has no lock
    with run.directory.held():
        assert run.directory.lost_launcher() is None
        run.directory.lock.write_text("4194305\n")  # more than any process id, as one of another container may seem
        assert run.directory.lost_launcher() is None
    assert run.directory.lost_launcher() == "4194305"
    run.directory.lock.write_text("")
    assert run.directory.lost_launcher() is None


def test_patience_counts_from_the_last_status_and_not_from_the_first(run, monkeypatch):
    now, connections = [0.0], iter([[RUNNING, RUNNING, None], [None], [SUCCEEDED]])

    def tell(*_):
        for status in next(connections):
            if status is None:
                raise grpc.RpcError("lost")
            now[0] += 20.0
            yield status

    run.directory.status_address.write_text("127.0.0.1:1")
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    monkeypatch.setattr(following, "_tell", tell)
    assert list(follow(run.directory, 1.0, patience=30.0)) == [RUNNING, RUNNING, SUCCEEDED]
