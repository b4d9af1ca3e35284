"""The status server as a process of its own, asked over real gRPC."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile

import grpc
import pytest
from kit.certificates import Authority
from trimtab.status.server import TrainerStatus
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.rpc.channels import format_grpc_error, open_channel
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc

#: Seconds: generous, because every other test may be running beside this one.
PATIENCE = 60
#: Seconds between messages that no test waits for.
NEVER = 3600


@pytest.fixture
def serve(run):
    """Start the server of the run at an address; whatever still runs afterwards is killed."""
    started = []

    def start(address, **environment):
        argv = [sys.executable, "-m", "trimtab.status.server", "--run", run.directory.path, "--job", run.directory.job]
        process = subprocess.Popen(
            [*argv, "--monitor", "localhost:1", "--listen", address],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE)


@pytest.fixture
def address():
    with tempfile.TemporaryDirectory() as directory:  # tmp_path is too long for the name of a socket
        yield f"unix:{directory}/status"


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"localhost:{probe.getsockname()[1]}"


def get(stub):
    return stub.GetStatus(status_pb2.GetStatusRequest(), timeout=PATIENCE, wait_for_ready=True)


def watch(stub, interval):
    request = status_pb2.WatchStatusRequest(interval_seconds=interval)
    return stub.WatchStatus(request, timeout=PATIENCE, wait_for_ready=True)


def test_it_tells_what_is_now_and_follows_the_run_to_its_end(run, serve, address):
    process = serve(address)
    with open_channel(address) as channel:
        stub = status_pb2_grpc.TrainerStatusStub(channel)
        assert get(stub).state == status_pb2.STATE_STARTING
        messages = watch(stub, interval=NEVER)
        assert next(messages).state == status_pb2.STATE_STARTING
        run.step(0)
        assert next(messages).state == status_pb2.STATE_RUNNING
        run.decision("0.01/all-gather", 1, "the network became slow")
        run.step(1, "0.01/all-gather", 1)
        assert next(messages).plan.reason == "the network became slow"
        run.end("failed", "rank 2 ended with exit code 3")
        last = next(messages)
        assert (last.state, last.message) == (status_pb2.STATE_FAILED, "rank 2 ended with exit code 3")
        assert list(messages) == []
    assert process.wait(PATIENCE) == 0


def test_progress_comes_at_the_asked_pace(run, serve, address):
    serve(address)
    run.step(0)
    with open_channel(address) as channel:
        stub = status_pb2_grpc.TrainerStatusStub(channel)
        messages = watch(stub, interval=0.1)
        assert next(messages).step == 1
        run.step(1)
        assert any(each.step == 2 for each in messages)


def test_every_watcher_hears_of_the_end(run, serve, address):
    process = serve(address)
    with open_channel(address) as channel:
        stub = status_pb2_grpc.TrainerStatusStub(channel)
        watchers = [watch(stub, interval=NEVER) for _ in range(5)]
        for each in watchers:
            next(each)
        run.end("succeeded")
        assert [next(each).state for each in watchers] == [status_pb2.STATE_SUCCEEDED] * 5
    assert process.wait(PATIENCE) == 0


def test_a_signal_ends_it(serve, address):
    process = serve(address)
    with open_channel(address) as channel:
        get(status_pb2_grpc.TrainerStatusStub(channel))
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_with_certificates_it_serves_its_job_alone(serve, tmp_path):
    authority = Authority.new()
    address = free_address()
    serve(address, TRIMTAB_TLS_DIR=str(authority.issue(tmp_path / "server")))
    mine = Certificates.read(authority.issue(tmp_path / "operator"))
    with open_channel(address, mine) as channel:
        assert get(status_pb2_grpc.TrainerStatusStub(channel)).job == "digits"
    theirs = Certificates.read(Authority.new().issue(tmp_path / "stranger"))
    with open_channel(address, theirs) as channel, pytest.raises(grpc.RpcError) as caught:
        status_pb2_grpc.TrainerStatusStub(channel).GetStatus(status_pb2.GetStatusRequest(), timeout=PATIENCE)
    assert format_grpc_error(caught.value) == "the server's certificate is of another authority than this job's"


def test_a_busy_port_is_one_line_and_exit_code_2(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = serve(f"127.0.0.1:{taken.getsockname()[1]}")
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("trimtab: status: --listen: '127.0.0.1:")
    assert errors.endswith("or stop what uses the port\n")


def test_a_watch_goes_on_at_its_interval_though_the_clock_was_set_back():
    async def scenario():
        now = 0.0
        service = TrainerStatus(status_pb2.Status(step=1, taken_at_unix_seconds=1e9), now=lambda: now)
        messages = service.WatchStatus(status_pb2.WatchStatusRequest(interval_seconds=5.0), None)
        assert (await anext(messages)).step == 1
        following = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        now = 6.0
        service.publish(status_pb2.Status(step=2, taken_at_unix_seconds=1e9 - 3600))
        assert (await asyncio.wait_for(following, PATIENCE)).step == 2

    asyncio.run(scenario())
