"""What `trimtab bench` promises to programs that read it: the fields of its JSON, measured at a small size."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from trimtab.cli.bench import collectives as bench_collectives
from trimtab.cli.bench import kernels as bench_kernels
from trimtab.cli.bench import step as bench_step
from trimtab.cli.main import main
from trimtab_api.catalogue import SPARSIFIERS


@pytest.fixture
def printed(capsys) -> Callable[..., Any]:
    """Runs a bench in this process and reads what it printed, all of it."""

    def run(*arguments: str) -> Any:
        assert main(["bench", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_kernels_tells_each_kernel_at_each_ratio_beside_the_floor_and_topk(printed, monkeypatch):
    monkeypatch.setattr(bench_kernels, "NUM_ELEMENTS", 200_000)
    monkeypatch.setattr(bench_kernels, "ROUNDS", 2)
    lines = printed("kernels")
    assert [(line["kernel"], line["ratio"]) for line in lines] == [
        (kernel, ratio) for ratio in (0.001, 0.01, 0.1) for kernel in ("fused_select", *SPARSIFIERS)
    ]
    for line in lines:
        assert line.keys() == {"kernel", "n", "ratio", "seconds", "floor_ratio", "speedup_over_topk"}
        assert line["n"] == 200_000
        assert min(line["seconds"], line["floor_ratio"], line["speedup_over_topk"]) > 0


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.namespaces
def test_step_tells_each_network_with_every_method_beside_dense(printed, monkeypatch):
    monkeypatch.setattr(bench_step, "NETWORKS", (("0.5ms", "1Gbps"),))
    (result,) = printed("step", "--workers", "2", "--steps", "1", "--plans", "0.01/all-gather")
    assert result.keys() == {"latency", "bandwidth", "step_seconds", "speedup_over_dense", "exposed_share"}
    assert (result["latency"], result["bandwidth"]) == (0.0005, 125e6)
    seconds = result["step_seconds"]
    assert list(seconds) == ["compute", "ddp", "ddp-fp16", "ddp-powersgd", "0.01/all-gather"]
    assert result["speedup_over_dense"] == {method: seconds["ddp"] / each for method, each in seconds.items()}
    assert min(seconds.values()) > 0


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.namespaces
def test_collectives_tells_every_cell_that_the_model_was_not_shown_and_how_many_it_got_right(printed, monkeypatch):
    monkeypatch.setattr(bench_collectives, "NUM_ELEMENTS", 50_000)
    monkeypatch.setattr(bench_collectives, "NETWORKS", {2: (("1ms", "1Gbps"), ("5ms", "100Mbps"))})
    monkeypatch.setattr(bench_collectives, "CALIBRATION", ((2, "1ms", "1Gbps", "0.1"),))
    result = printed("collectives", "--repeats", "1")
    cells = result.pop("cells")
    clear = [cell for cell in cells if cell["clear"]]
    right = sum(cell["predicted"] == cell["fastest"] for cell in clear)
    assert max(cell["regret"] for cell in cells) == result.pop("worst_regret")
    assert result.pop("mean_regret") >= 1
    assert result == {"elements": 50_000, "calibration_cells": 1, "clear_cells": len(clear), "right": right}
    assert [(cell["ranks"], cell["latency"], cell["bandwidth"], cell["ratio"]) for cell in cells] == [
        *((2, 0.001, 125e6, ratio) for ratio in (0.01, 0.001)),
        *((2, 0.005, 12.5e6, ratio) for ratio in (0.1, 0.01, 0.001)),
    ]
    for cell in cells:
        for times, best in (("measured_seconds", "fastest"), ("predicted_seconds", "predicted")):
            assert list(cell[times]) == ["all-gather", "artopk-star-ring", "artopk-star-tree"]
            assert cell[times][cell[best]] == min(cell[times].values()) > 0
        assert cell["regret"] == cell["measured_seconds"][cell["predicted"]] / cell["measured_seconds"][cell["fastest"]]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.namespaces
def test_an_exchange_is_timed_from_when_all_ranks_begin(printed, monkeypatch):
    """Bruck's all-gather among four takes two latencies; after a barrier, which ranks leave one by one, three."""
    monkeypatch.setattr(bench_collectives, "NUM_ELEMENTS", 10_000)
    monkeypatch.setattr(bench_collectives, "NETWORKS", {4: (("25ms", "1Gbps"),)})
    monkeypatch.setattr(bench_collectives, "CALIBRATION", ((4, "25ms", "1Gbps", "0.1"),))
    for cell in printed("collectives", "--repeats", "5")["cells"]:
        assert 2 * 0.025 <= cell["measured_seconds"]["all-gather"] < 2.6 * 0.025


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.namespaces
def test_exchanges_are_told_whole_beside_what_the_model_says_and_beside_spardl(printed, monkeypatch):
    monkeypatch.setattr(bench_collectives, "NUM_ELEMENTS", 50_000)
    monkeypatch.setattr(bench_collectives, "EXCHANGE_HOSTS", 2)
    monkeypatch.setattr(bench_collectives, "EXCHANGE_COLLECTIVES", ("all-gather", "spardl"))
    lines = printed("collectives", "--exchanges", "--repeats", "1")
    assert [(each["latency"], each["collective"]) for each in lines] == [
        *((0.0005, name) for name in ("all-gather", "spardl")),
        *((0.005, name) for name in ("all-gather", "spardl")),
    ]
    for line in lines:
        assert min(line["select_seconds"], line["predicted_seconds"]) > 0
        assert max(line["select_seconds"], line["wire_seconds"]) <= line["whole_seconds"]
        expected = line["predicted_seconds"] + line["floor_seconds"]
        assert line["over_prediction"] == line["whole_seconds"] / expected
    assert [each["over_spardl"] for each in lines if each["collective"] == "spardl"] == [1, 1]
