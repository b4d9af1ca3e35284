"""What a bench runs on emulated hosts: the last line of rank 0 is its result; a rank that fails ends it at once."""

import pytest
from trimtab.evaluation.bench.fleet import run_on_hosts
from trimtab_api.errors import UserError
from trimtab_netmon.emulate import Network, Phase

pytestmark = pytest.mark.namespaces

NETWORK = Network((Phase(60.0, 0.001, 125e6),))
WORKER = """
import json, os, sys, time
rank = int(os.environ["RANK"])
print("a line before")
if sys.argv[1] == "fail":
    if rank == 1:
        sys.exit("no room for the model")
if sys.argv[1] != "end":
    time.sleep(600)
print(json.dumps({"ranks": int(os.environ["WORLD_SIZE"])}))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "bench_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda what, timeout=60.0: run_on_hosts(NETWORK, 2, "bench_worker", [what], timeout)


def test_the_last_line_of_rank_0_is_the_result(run):
    assert run("end") == {"ranks": 2}


def test_a_rank_that_fails_ends_the_bench_in_one_line_though_others_would_wait(run):
    with pytest.raises(UserError) as failed:
        run("fail")
    assert str(failed.value) == "bench: rank 1 ended with exit code 1: no room for the model"


def test_a_bench_that_does_not_end_is_ended(run):
    with pytest.raises(UserError, match=r"^bench: did not end within 0.1 s"):
        run("wait", timeout=0.1)
