"""What `trimtab status` tells a script by its exit code."""

import pytest
from trimtab.cli.main import main
from trimtab.status import following
from trimtab_api.trainer.v1 import status_pb2


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (status_pb2.STATE_STARTING, 0),
        (status_pb2.STATE_RUNNING, 0),
        (status_pb2.STATE_SUCCEEDED, 0),
        (status_pb2.STATE_FAILED, 1),
    ],
)
def test_only_a_job_that_failed_is_a_failure(tmp_path, monkeypatch, capsys, state, code):
    status = status_pb2.Status(job="digits", state=state)
    monkeypatch.setattr(following, "follow", lambda *_: iter([status, status]))
    assert main(["status", str(tmp_path), "--once"]) == code
    assert len(capsys.readouterr().out.splitlines()) == 1
