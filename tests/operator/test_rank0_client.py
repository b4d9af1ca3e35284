"""The operator hears rank 0 over mutual TLS, from a worker's being ready to the last word."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from types import SimpleNamespace

import grpc
import pytest
from fixtures import NOW, UID, batch_job, observed
from trimtab_api.rpc.channels import listen
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc
from trimtab_operator.children.secret import issue_certificates
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.rank0 import client as training_status
from trimtab_operator.rank0.client import NEWS_RECONCILES, Rank0Client

SUCCEEDED = status_pb2.STATE_SUCCEEDED


class Rank0(status_pb2_grpc.TrainerStatusServicer):
    """Says what it is given, in every stream; None ends a stream without a last word."""

    def __init__(self):
        self.says = SimpleQueue()

    def WatchStatus(self, request, context):  # noqa: N802 - gRPC's name
        while (status := self.says.get()) is not None:
            yield status
            if status.state == SUCCEEDED:
                return


@contextmanager
def serve(certificates, servicer, address="localhost:0"):
    server = grpc.server(ThreadPoolExecutor(4))
    status_pb2_grpc.add_TrainerStatusServicer_to_server(servicer, server)
    port = listen(server, address, certificates)
    server.start()
    yield f"localhost:{port}"
    server.stop(None).wait()


@pytest.fixture
def certificates():
    return issue_certificates("digits", "team", NOW)


@pytest.fixture
def rank0():
    return Rank0()


@pytest.fixture
def hearing(certificates, rank0):
    """What the operator knows of training, its news, and rank 0, where it is heard."""
    news = SimpleQueue()
    with serve(certificates, rank0) as address:
        status = Rank0Client(lambda namespace, name: certificates, news.put, lambda namespace, name, batch_job: address)
        status.start()
        yield status, news
        status.stop()
        rank0.says.put(None)


def say(rank0, news, **status):
    rank0.says.put(status_pb2.Status(job="digits", **status))
    assert news.get(timeout=30) == "team/digits"


def test_a_job_that_runs_is_heard_and_its_news_looked_at(hearing, rank0):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, step=12)
    assert status.latest(UID).step == 12
    say(rank0, news, step=13)
    assert status.latest(UID).step == 13


def test_a_job_none_of_whose_workers_is_ready_is_not_heard(hearing):
    status, _ = hearing
    status.follow(observed(batch_job=batch_job(active=2, ready=0)))
    assert status.latest(UID) is None


def test_the_last_word_holds_when_the_pods_have_ended_and_until_it_is_written_down(hearing, rank0):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, step=12)
    say(rank0, news, step=132, state=SUCCEEDED)
    for ends in (
        batch_job(active=2, ready=1),
        batch_job(active=1, ready=0, succeeded=1),
        batch_job(is_complete=True, succeeded=2),
    ):
        status.follow(observed(batch_job=ends))
        assert status.latest(UID).step == 132
    status.follow(observed(batch_job=batch_job(is_complete=True, succeeded=2), status={"state": "Succeeded"}))
    assert status.latest(UID) is None


def test_a_last_word_that_comes_after_the_pods_were_seen_to_end_is_heard(hearing, rank0):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, step=12)
    status.follow(observed(batch_job=batch_job(active=2, ready=0)))
    say(rank0, news, step=132, state=SUCCEEDED)
    assert status.latest(UID).step == 132


def test_a_stream_that_breaks_is_taken_up_again(hearing, rank0):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, step=12)
    rank0.says.put(None)
    say(rank0, news, step=13)
    assert status.latest(UID).step == 13


def test_what_an_earlier_attempt_said_is_forgotten(hearing, rank0):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, step=12, state=SUCCEEDED)
    status.follow(observed(batch_job=batch_job(uid="another", ready=0)))
    assert status.latest(UID) is None
    status.follow(observed(batch_job=batch_job(uid="another", ready=2)))
    say(rank0, news, step=1)
    assert status.latest(UID).step == 1


def test_a_job_that_is_gone_is_forgotten(hearing, rank0):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, step=12)
    status.forget("team", "digits")
    assert status.latest(UID) is None


@pytest.mark.parametrize("ready", [0, 2])
def test_a_job_whose_place_another_of_its_name_took_is_forgotten(hearing, rank0, ready):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, step=12)
    status.follow(observed(spec={"name": "letters"}, batch_job=None, uid="letters-uid"))
    assert status.latest(UID).step == 12
    status.follow(observed(batch_job=batch_job(uid="another", owner_uid="newer", ready=ready), uid="newer"))
    assert status.latest(UID) is None


def test_a_job_without_certificates_does_not_keep_the_others_from_being_heard(certificates, rank0):
    news = SimpleQueue()
    found = {"bad": None, "digits": certificates}
    with serve(certificates, rank0) as address:
        status = Rank0Client(lambda _, name: found[name], news.put, lambda *_: address)
        status.start()
        status.follow(observed(spec={"name": "bad"}, batch_job=batch_job(ready=2, owner_uid="bad-uid"), uid="bad-uid"))
        status.follow(observed(batch_job=batch_job(ready=2)))
        say(rank0, news, step=12)
        status.stop()
        rank0.says.put(None)


def test_a_rank_0_that_cannot_be_heard_for_long_is_told_with_the_cause_until_it_is_heard(
    certificates, rank0, monkeypatch
):
    monkeypatch.setattr(training_status, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(training_status, "RETRY_SECONDS", 0.1)
    news = SimpleQueue()
    known = {"certificates": issue_certificates("digits", "team", NOW)}  # of another authority than rank 0's
    with serve(certificates, rank0) as address:
        status = Rank0Client(lambda *_: known["certificates"], news.put, lambda *_: address)
        status.start()
        status.follow(observed(batch_job=batch_job(ready=2)))
        assert news.get(timeout=30) == "team/digits"
        assert status.unreachable_reason(UID).startswith("rank 0 has not reported for 0 s: ")
        assert address.rsplit(":")[-1] in status.unreachable_reason(UID), "where it was looked for"
        known["certificates"] = certificates
        say(rank0, news, step=12)
        assert (status.unreachable_reason(UID), status.latest(UID).step) == ("", 12)
        status.stop()
        rank0.says.put(None)


def test_a_job_whose_certificates_are_gone_says_so(rank0, monkeypatch):
    monkeypatch.setattr(training_status, "SILENT_SECONDS", 0.0)
    news = SimpleQueue()
    status = Rank0Client(lambda *_: None, news.put, lambda *_: "localhost:1")
    status.start()
    status.follow(observed(batch_job=batch_job(ready=2)))
    assert news.get(timeout=30) == "team/digits"
    assert status.unreachable_reason(UID).endswith("is not there, or does not hold what the operator put there")
    status.stop()


def test_a_rank_0_that_cannot_be_heard_does_not_have_its_certificates_read_each_time(certificates, monkeypatch):
    monkeypatch.setattr(training_status, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(training_status, "LONGEST_RETRY_SECONDS", 0.01)
    attempts, read = SimpleQueue(), []

    def address(*_):
        attempts.put("one more")
        return "localhost:1"

    status = Rank0Client(lambda *_: read.append("once") or certificates, lambda _: None, address)
    status.start()
    status.follow(observed(batch_job=batch_job(ready=2)))
    for _ in range(2 * 9):  # the address is asked for twice an attempt: to call it, and to tell of it
        attempts.get(timeout=30)
    assert read == ["once"]
    status.stop()


def test_a_rank_0_that_takes_a_while_to_start_is_not_complained_of(certificates, rank0):
    """While nobody listens yet a connection is refused; sixty seconds are not over."""
    news = SimpleQueue()
    addresses = iter(["localhost:1"])
    with serve(certificates, rank0) as address:
        status = Rank0Client(lambda *_: certificates, news.put, lambda *_: next(addresses, address))
        status.start()
        status.follow(observed(batch_job=batch_job(ready=2)))
        say(rank0, news, step=1)
        assert status.unreachable_reason(UID) == ""
        assert news.empty()
        status.stop()
        rank0.says.put(None)


def test_a_message_that_is_too_long_is_not_read_and_the_user_is_told_why(hearing, rank0, monkeypatch):
    monkeypatch.setattr(training_status, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(training_status, "RETRY_SECONDS", 0.1)
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    say(rank0, news, plan=status_pb2.Plan(version=1, reason=70_000 * "x"))
    assert status.latest(UID) is None
    assert "larger than max" in status.unreachable_reason(UID)
    rank0.says.put(None)
    say(rank0, news, step=12)
    assert (status.latest(UID).step, status.unreachable_reason(UID)) == (12, "")


def test_a_rank_0_that_floods_is_looked_at_no_more_than_its_share_and_others_are_heard(certificates, monkeypatch):
    monkeypatch.setattr(training_status, "SECONDS_PER_NEWS_RECONCILE", 1e6)
    floods, digits, news = Rank0(), Rank0(), SimpleQueue()
    with serve(certificates, floods) as of_floods, serve(certificates, digits) as of_digits:
        addresses = {"floods": of_floods, "digits": of_digits}
        status = Rank0Client(lambda *_: certificates, news.put, lambda _, name, batch_job: addresses[name])
        status.start()
        for version in range(50):
            floods.says.put(status_pb2.Status(plan=status_pb2.Plan(version=version)))
        status.follow(
            observed(spec={"name": "floods"}, batch_job=batch_job(ready=2, owner_uid="floods-uid"), uid="floods-uid")
        )
        assert [news.get(timeout=30) for _ in range(NEWS_RECONCILES)] == ["team/floods"] * NEWS_RECONCILES
        status.follow(observed(batch_job=batch_job(ready=2)))
        say(digits, news, step=12)
        assert news.empty()
        assert status.latest("floods-uid").plan.version == NEWS_RECONCILES - 1
        status.stop()
        for each in (floods, digits):
            each.says.put(None)


def test_how_far_an_attempt_has_got_is_kept_and_a_suspension_begins_it_anew(hearing, rank0):
    status, news = hearing
    status.follow(observed(batch_job=batch_job(ready=2)))
    assert status.progress(UID) == Progress()
    say(rank0, news, step=12, state=status_pb2.STATE_RUNNING)
    assert status.progress(UID) == Progress(has_trained=True)
    say(rank0, news, step=12, state=status_pb2.STATE_RUNNING)
    assert status.progress(UID).seconds_without_progress > 0
    status.follow(observed(batch_job=batch_job(is_suspended=True, ready=2)))
    assert (status.latest(UID), status.progress(UID)) == (None, Progress())


def test_a_rank_0_whose_pod_is_not_there_yet_is_not_complained_of(certificates, monkeypatch):
    """Another worker is ready, so it is listened for already."""
    monkeypatch.setattr(training_status, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(training_status, "LONGEST_RETRY_SECONDS", 0.01)
    now = [0.0]
    monkeypatch.setattr(training_status, "time", SimpleNamespace(monotonic=lambda: now[0]))
    attempts = SimpleQueue()
    status = Rank0Client(lambda *_: certificates, lambda _: None, lambda *_: attempts.put("one") or "localhost:1")
    status.start()
    for _ in range(3):
        now[0] += 59.0
        status.follow(observed(batch_job=batch_job(ready=1)))
        for _ in range(4):
            attempts.get(timeout=30)
        assert status.unreachable_reason(UID) == ""
    status.stop()
