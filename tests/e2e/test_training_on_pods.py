"""examples/digits.yaml, applied with more epochs and another speed weight, trains on four pods.

When the network of one pod becomes forty times slower this is measured, told, and answered by another plan. The file's
six epochs can be over in the time that this may take (`EPOCHS`), and with its own speed weight it already sends as
little as it may over 1 Gbit/s, so that a slower network would find nothing to change (`SPEED_WEIGHT`). Nor may ranks
take local steps, with which a plan that sends less has no smaller ratio. The very file is applied in
test_the_example_as_it_stands.py.

Meanwhile a Prometheus scrapes what the chart's PodMonitors select, and answers the chart's dashboards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from marks import WITH_TRIMTAB
from place import StepTag, condition, has_ended
from programs import wait_until
from scrape import Scraped, scraper
from trimtab_api.names import MONITOR_METRICS_PORT, TRAINER_METRICS_PORT
from trimtab_api.units import parse_bandwidth

pytestmark = [*WITH_TRIMTAB, pytest.mark.full]

#: More than the story can need. To measure and answer a slower network takes up to 40 s, six epochs may take no longer;
#: and where the first bandwidth test ran beside pods that still started, the budget allows the next after 100 s.
EPOCHS = 24
#: 1437 images for four ranks, 16 at a time.
STEPS = EPOCHS * 22
#: Cares more for the gain than for the step time: larger ratios where the network bears them.
SPEED_WEIGHT = 0.3
#: What one pod's network is made to carry, so little that a step notices, however slow the machine computes.
SLOW_BITS_PER_SECOND = 25_000_000
#: What a measurement of the untouched network, of 1 Gbit/s, must exceed.
FULL_BITS_PER_SECOND = 800_000_000
#: Asked of Prometheus.
STEPS_TAKEN = "trimtab_trainer_steps_total"
MONITORS = "count by (namespace, trimtab_dev_job_name) (trimtab_network_revision)"
LEADERS = "sum(trimtab_operator_leader)"
OPERATOR_PODS = "--selector=app.kubernetes.io/name=trimtab-operator"


@dataclass
class Seen:
    """A job at one moment."""

    status: dict[str, Any]
    shown: str
    """What ``kubectl get tj`` printed."""

    @property
    def columns(self) -> dict[str, str]:
        """What it printed, by column."""
        heads, row = (line.split() for line in self.shown.splitlines())
        return dict(zip(heads, row, strict=True))


def look(place: StepTag, status: dict[str, Any]) -> Seen:
    return Seen(status, place.kubectl("get", "tj", "digits"))


def where_metrics_are(workers: list[dict[str, Any]], operators: list[dict[str, Any]]) -> set[str]:
    """The run's beside rank 0, each monitor's, and each operator process's."""
    found = [(workers[0], TRAINER_METRICS_PORT)]
    found += [(pod, MONITOR_METRICS_PORT) for pod in workers] + [(pod, 8080) for pod in operators]
    return {f"http://{pod['status']['podIP']}:{port}/metrics" for pod, port in found}


@dataclass
class Story:
    """What was seen of the job, and where."""

    place: StepTag
    training: Seen
    slowed: Seen | None
    """None where the network could not be made slower: on a cluster that was given."""
    scraped: Scraped | None
    """None there too: nothing that tests start reaches its pods."""
    scrapable: set[str]
    """Where the job's pods and the operator's serve metrics."""
    ended: Seen
    events: list[tuple[str, str]]
    logs: dict[str, str]
    """Of worker 0, by container."""


@pytest.fixture(scope="module")
def story(ground, release, new_place, shown, tmp_path_factory) -> Story:
    place = new_place()
    job = ground.images.example("digits.yaml")
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    trainer["args"] = ["--epochs", str(EPOCHS)]
    job["spec"]["communication"] |= {"speedWeight": SPEED_WEIGHT, "localSteps": {"max": 0}}
    place.apply(job)

    def is_under_way(status: dict[str, Any]) -> bool:
        """A first bandwidth test may run beside pods that still start; the next ones see what the network carries."""
        carried = status.get("network", {}).get("bandwidthBytesPerSecond", 0) * 8
        is_measured = ground.node is None or carried > FULL_BITS_PER_SECOND
        return status.get("plan", {}).get("version", 0) >= 1 and is_measured

    training = look(place, status := place.wait_for_status("digits", is_under_way, "it has a plan and a network", 240))
    slowed = scraped = None
    if ground.node is not None:
        its = ground.place(release.namespace)
        with scraper(ground.node, its, place, "digits", tmp_path_factory.mktemp("prometheus")) as prometheus:
            ground.node.limit(place.pods("digits")[1]["status"]["podIP"], SLOW_BITS_PER_SECOND)
            ratio = float(status["plan"]["ratio"])

            def is_answered(status: dict[str, Any]) -> bool:
                degraded = condition(status, "NetworkDegraded").get("status") == "True"
                return degraded and float(status["plan"]["ratio"]) < ratio

            answer = "a plan that sends less answers the slower network"
            slowed = look(place, place.wait_for_status("digits", is_answered, answer, 240))
            scraped = prometheus.look(STEPS_TAKEN, MONITORS, LEADERS)
    scrapable = where_metrics_are(
        place.pods("digits"), ground.place(release.namespace).get("pods", OPERATOR_PODS)["items"]
    )
    ended = look(place, place.wait_for_status("digits", has_ended, "it ends", 900))
    pod = place.pods("digits")[0]["metadata"]["name"]
    story = Story(
        place,
        training,
        slowed,
        scraped,
        scrapable,
        ended,
        place.events("digits"),
        {name: place.kubectl("logs", pod, f"--container={name}") for name in ("trainer", "netmon")},
    )
    (shown / "get.txt").write_text("".join(each.shown for each in (training, slowed, ended) if each))
    (shown / "describe.txt").write_text(place.kubectl("describe", "tj", "digits"))
    for name, words in story.logs.items():
        (shown / f"{name}.log").write_text(words)
    return story


@pytest.fixture
def slowed(story) -> Seen:
    if story.slowed is None:
        pytest.skip("the network of a cluster that was given is not ours to make slower")
    return story.slowed


@pytest.fixture
def scraped(story) -> Scraped:
    if story.scraped is None:
        pytest.skip("nothing that tests start reaches the pods of a cluster that was given")
    return story.scraped


def is_slow(bandwidth: str) -> bool:
    """Whether that is what the slowed network carries, as well as a test beside training measures it."""
    return 0.8 < parse_bandwidth(bandwidth) * 8 / SLOW_BITS_PER_SECOND < 1.2


def test_the_columns_show_workers_plan_network_and_step(story):
    assert list(story.training.columns) == [
        "NAME", "STATE", "WORKERS", "RATIO", "COLLECTIVE", "LATENCY", "BANDWIDTH", "STEP", "AGE",
    ]  # fmt: skip
    assert (story.training.columns["STATE"], story.training.columns["WORKERS"]) == ("Running", "4")
    assert 0.0 < float(story.training.columns["RATIO"]) <= 0.1
    assert story.training.columns["COLLECTIVE"] == story.training.status["plan"]["collective"]


def test_monitors_measure_what_the_pods_network_carries(story, slowed):
    assert FULL_BITS_PER_SECOND < parse_bandwidth(story.training.columns["BANDWIDTH"]) * 8 < 1000e6
    assert is_slow(slowed.columns["BANDWIDTH"])


def test_another_plan_answers_a_slower_network(story, slowed):
    before, after = story.training.status["plan"], slowed.status["plan"]
    assert float(after["ratio"]) < float(before["ratio"])
    assert after["reason"].startswith(f"{after['name']} should take")
    assert slowed.columns["RATIO"] == after["ratio"]


def test_events_tell_of_the_network_and_of_the_plans(story, slowed):
    told = [reason for reason, _ in story.events]
    # A first plan may be decided with the first step, and told within the same second.
    assert max(told.index("Running"), told.index("PlanChanged")) < told.index("NetworkDegraded")
    carried = re.match(r"the slowest link carries (\S+),", dict(story.events)["NetworkDegraded"])
    assert carried is not None
    # The first figure may be of a test that began before the network narrowed; `slowed` has the one after it.
    assert 0.8 * SLOW_BITS_PER_SECOND < parse_bandwidth(carried[1]) * 8 < 0.5 * FULL_BITS_PER_SECOND
    changes = [message for reason, message in story.events if reason == "PlanChanged"]
    plan = slowed.status["plan"]
    assert any(
        each.startswith(f"{plan['name']} from step {plan['adoptedAtStep']}: {plan['name']} should") for each in changes
    )


def test_the_charts_pod_monitors_have_rank_0_every_monitor_and_the_operator_scraped(story, scraped):
    assert scraped.targets == dict.fromkeys(story.scrapable, "")
    its = (story.place.namespace, "digits")
    assert scraped.values[MONITORS] == {its: 4}
    assert scraped.values[LEADERS] == {("", ""): 1}
    ((job, steps),) = scraped.values[STEPS_TAKEN].items()
    assert (job, 0 < steps <= STEPS) == (its, True)


def test_every_panel_shows_something_of_a_job_on_a_cluster(scraped):
    assert scraped.unanswered == []


def test_the_job_succeeds_on_its_first_attempt(story):
    status = story.ended.status
    assert (status["state"], status["restarts"], status["workers"]["succeeded"]) == ("Succeeded", 0, 4)
    assert status["step"] == STEPS  # rank 0's last word
    assert status["loss"] < 1.0  # of ten digits, none known: 2.3
    assert condition(status, "Succeeded")["status"] == "True"
    assert story.events[-1][0] == "Succeeded"


def test_a_pods_words_are_read_by_container(story):
    assert "worker 0 of 4 listens on" in story.logs["netmon"]
    assert "Traceback" not in story.logs["trainer"]


def test_pods_run_the_images_of_this_version(story, ground):
    for pod in story.place.pods("digits"):
        (monitor,), (trainer,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
        assert monitor["image"] == ground.images.name("netmon")
        assert trainer["image"].endswith(f"/trainer:{ground.images.tag}")


def test_deleting_the_job_leaves_nothing(story):
    assert story.place.leftovers() != []
    story.place.kubectl("delete", "tj", "digits")
    wait_until(lambda: story.place.leftovers() == [], "nothing is left of it", 60, interval=0.5)
