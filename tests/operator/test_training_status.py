"""The operator asks rank 0 over mutual TLS, as long as the job runs."""

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import grpc
import pytest
from trimtab_api.channels import listen
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc
from trimtab_operator.certificates import issue
from trimtab_operator.training_status import TrainingStatus
from worlds import NOW, UID, child, world


class Rank0(status_pb2_grpc.TrainerStatusServicer):
    def GetStatus(self, request, context):  # noqa: N802 - gRPC's name
        return status_pb2.Status(job="digits", step=12)


@pytest.fixture
def rank0():
    """Certificates, and where rank 0 listens."""
    certificates = issue("digits", "team", NOW)
    server = grpc.server(ThreadPoolExecutor(2))
    status_pb2_grpc.add_TrainerStatusServicer_to_server(Rank0(), server)
    port = listen(server, "localhost:0", certificates)
    server.start()
    yield certificates, f"localhost:{port}"
    server.stop(None)


@pytest.fixture
def asking(rank0):
    certificates, address = rank0
    news = SimpleQueue()
    status = TrainingStatus(lambda namespace, name: certificates, news.put, address=lambda namespace, name: address)
    status.start()
    yield status, news
    status.stop()


def test_a_job_that_runs_is_asked_and_its_news_looked_at(asking):
    status, news = asking
    status.follow(world(child=child(ready=2)))
    assert news.get(timeout=30) == "team/digits"
    assert status.latest(UID).step == 12


def test_a_job_that_does_not_run_is_not_asked(asking):
    status, news = asking
    status.follow(world(child=child(ready=2)))
    news.get(timeout=30)
    status.follow(world(child=child(active=2, ready=0)))
    assert status.latest(UID) is None


def test_a_job_that_is_gone_is_forgotten(asking):
    status, news = asking
    status.follow(world(child=child(ready=2)))
    news.get(timeout=30)
    status.forget("team", "digits")
    assert status.latest(UID) is None


def test_a_job_without_certificates_does_not_keep_the_others_from_being_asked(rank0):
    certificates, address = rank0
    news = SimpleQueue()
    found = {"bad": None, "digits": certificates}
    status = TrainingStatus(lambda _, name: found[name], news.put, address=lambda *_: address)
    status.start()
    status.follow(world(spec={"name": "bad"}, child=child(ready=2), uid="bad-uid"))
    status.follow(world(child=child(ready=2)))
    assert news.get(timeout=30) == "team/digits"
    status.stop()
