"""A run's metrics: what its files say, in Prometheus' words."""

import json
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families
from run_lines import DECISION, STEP
from trimtab.launch.environment.ports import free_ports
from trimtab.run_files.layout import RunDirectory
from trimtab.status.metrics import MOST_EVALUATIONS, RunMetrics, serve
from trimtab_api.errors import UserError


class Served:
    """A run directory whose metrics are served, and what a scrape of it finds."""

    def __init__(self, path):
        self.directory = RunDirectory(path)
        (self.port,) = free_ports(1)
        serve(self.directory, "127.0.0.1", self.port)

    def add(self, *lines):
        for line in lines:
            file = self.directory.decisions if "record" in line else self.directory.metrics
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")

    def scrape(self):
        """The value of each sample, by its name and the values of its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [sample for family in families for sample in family.samples]
        return {
            (sample.name.removeprefix("trimtab_trainer_"), *sample.labels.values()): sample.value for sample in samples
        }


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path)


def test_what_is_not_known_yet_is_absent_but_for_what_is_counted(served):
    found = served.scrape()
    assert found["steps_total",] == 0
    assert found["plan_changes_total", "network"] == 0, "a counter that appears with its first change hides that change"
    assert not any(key[0] in ("loss", "gain_ratio", "plan_info", "predicted_step_seconds") for key in found)


def test_steps_add_up_by_phase_and_the_plan_in_force_is_named_by_its_axes(served):
    served.add(STEP, {**STEP, "step": 1, "time": 1.1, "loss": 1.5, "gain": None})
    found = served.scrape()
    assert found["steps_total",] == 2
    for phase, seconds in (("forward", 0.16), ("backward", 0.3), ("optimizer", 0.1), ("other", 0.04)):
        assert found["step_seconds_total", phase] == pytest.approx(seconds)
    assert found["step_seconds_total", "exposed"] == pytest.approx(0.4)
    assert found["step_seconds_total", "compress"] == pytest.approx(0.1)
    assert found["step_seconds_total", "collective"] == pytest.approx(0.5)
    assert found["sent_bytes_total",] == 200
    assert (found["step",], found["loss",], found["gain_ratio",], found["late_seconds",]) == (1, 1.5, 0.4, 0.02)
    assert (found["compression_ratio",], found["achieved_ratio",], found["residual_norm",]) == (0.01, 0.011, 3.5)
    (plan,) = (key for key in found if key[0] == "plan_info")
    assert {"0.01/all-gather/sparsifier=topk", "all-gather", "topk", "wait-free", "gradient"} <= set(plan)


def test_a_scrape_reads_on_where_the_last_one_ended(served):
    served.add(STEP)
    served.scrape()
    served.add({**STEP, "step": 1, "plan": "dense-ring", "gain": 1.0, "finite": False}, {**STEP, "trial": True})
    found = served.scrape()
    assert (found["steps_total",], found["dropped_steps_total",], found["trial_steps_total",]) == (2, 1, 1)
    assert found["trial_seconds_total",] == 0.5
    assert found["compression_ratio",] == 1
    assert len([key for key in found if key[0] == "plan_info"]) == 1, "one plan is in force"


def test_a_step_that_sends_nothing_leaves_the_residual_as_it_was(served):
    served.add(STEP, {**STEP, "step": 1, "achieved_ratio": None, "residual_norm": 0.0})
    found = served.scrape()
    assert (found["achieved_ratio",], found["residual_norm",]) == (0.011, 3.5)


def test_an_exchange_that_ends_a_round_early_counts_for_itself_and_is_no_step(served):
    ended = {"event": "end of round", "step": 0, "time": 0.9, "wait_seconds": 0.2, "compress_seconds": 0.01}
    served.add(STEP, ended | {"collective_seconds": 0.1, "bytes": 30, "messages": 2})
    found = served.scrape()
    assert (found["steps_total",], found["sent_bytes_total",], found["messages_total",]) == (1, 130, 6)
    assert found["step_seconds_total", "exposed"] == pytest.approx(0.4)
    assert found["step_seconds_total", "collective"] == pytest.approx(0.35)


def test_decisions_are_counted_by_what_they_followed(served):
    served.add(
        DECISION,
        {**DECISION, "trigger": "gain", "changed": False, "predicted_seconds": 0.25},
        {"record": "measured", "id": 1, "measured_step_seconds": 0.24},
        {"record": "profile"},
    )
    found = served.scrape()
    assert (found["decisions_total", "network"], found["decisions_total", "gain"]) == (1, 1)
    assert (found["plan_changes_total", "network"], found["plan_changes_total", "gain"]) == (1, 0)
    assert (found["predicted_step_seconds",], found["measured_step_seconds",]) == (0.25, 0.24)
    assert (found["dense_step_seconds",], found["dense_exposed_seconds",]) == (0.5, 0.375)
    assert found["solving_seconds_total",] == pytest.approx(0.02)


def test_what_a_script_reports_has_its_own_names_but_not_without_end(served):
    evaluation = {"event": "evaluation", "step": 0, "time": 1.0}
    served.add({**evaluation, "accuracy": 0.5, "note": "text"}, {**evaluation, "accuracy": 0.6})
    served.add({**evaluation, **{f"made_up_{n}": n for n in range(100)}}, STEP, DECISION)
    found = served.scrape()
    assert found["evaluation", "accuracy"] == 0.6
    assert len([key for key in found if key[0] == "evaluation"]) == MOST_EVALUATIONS
    assert MOST_EVALUATIONS < len(found) <= 100, "series of one run"


def test_a_single_process_exchanges_nothing(served):
    served.add({"step": 0, "time": 0.1, "loss": 1.0, "step_seconds": 0.1})
    found = served.scrape()
    assert found["step_seconds_total", "other"] == pytest.approx(0.1), "nobody tells its parts"
    assert not any(key[0] in ("plan_info", "gain_ratio", "achieved_ratio") for key in found)


def test_a_port_that_is_taken_is_one_line(served, tmp_path):
    with pytest.raises(UserError) as refused:
        serve(RunDirectory(tmp_path), "127.0.0.1", served.port)
    assert str(refused.value) == (
        f"--port: '127.0.0.1:{served.port}': cannot listen there (Address already in use); stop what uses the port, or"
        " choose another"
    )


def test_a_guard_that_takes_the_job_back_to_dense_is_counted_and_the_end_of_its_hold_is_not(served):
    guard = {**DECISION, "trigger": "guard"}
    back, on, kept = {"name": "dense-ring"}, {"name": "0.01/all-gather"}, {"name": "dense-ring"}
    served.add({**guard, "adopted": back}, {**guard, "adopted": on}, {**guard, "adopted": kept, "changed": False})
    found = served.scrape()
    assert (found["guard_activations_total",], found["plan_changes_total", "guard"]) == (1, 2)


def test_scrapes_at_one_time_count_each_line_once(tmp_path):
    directory, scrapes = RunDirectory(tmp_path), 4
    directory.metrics.write_text(3000 * f"{json.dumps(STEP)}\n")
    metrics, together = RunMetrics(directory), threading.Barrier(scrapes)

    def scrape(_):
        together.wait()
        return list(metrics.collect())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(scrapes) as threads:
            list(threads.map(scrape, range(scrapes)))
    finally:
        sys.setswitchinterval(interval)
    (steps,) = [each for each in metrics.collect() if each.name == "trimtab_trainer_steps"]
    assert steps.samples[0].value == 3000
