"""What a Prometheus on the node's network finds of a job, told what to scrape by what the chart installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import dashboards
import pod_monitors
from node import Node
from place import StepTag
from programs import wait_until

#: Seconds between two scrapes.
_INTERVAL = 2
#: Seconds until everything is there to be scraped.
_PATIENCE = 240.0
_CHANGES = "trimtab_trainer_plan_changes_total"


@dataclass
class Scraped:
    """What was found while a job trained."""

    targets: dict[str, str] = field(default_factory=dict)
    """What went wrong by URL, empty where nothing did."""
    values: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    """Of queries: values by namespace and job."""
    unanswered: list[dashboards.Query] = field(default_factory=list)
    """Queries of dashboards about the job that found nothing."""


class Scraper:
    """A Prometheus that runs."""

    def __init__(self, url: str, place: StepTag, job: str) -> None:
        self._url = url
        self._place = place
        self._job = job

    def look(self, *queries: str) -> Scraped:
        """Everything that is found now, once all targets have answered and all dashboards show something.

        Where that does not come to pass, what is found after four minutes: some figures are means of many steps.
        """
        seen = Scraped()

        def is_complete() -> bool:
            seen.targets = pod_monitors.targets(self._url)
            asked = dashboards.dashboard_queries(self._place.namespace, self._job)
            seen.unanswered = [each for each in asked if not pod_monitors.result(self._url, each.text)]
            return not seen.unanswered and not any(seen.targets.values())

        with suppress(TimeoutError):  # what is missing is the tests' to tell
            wait_until(is_complete, "everything is found", seconds=_PATIENCE, interval=_INTERVAL)
        seen.values = {query: pod_monitors.values(self._url, query) for query in queries}
        return seen


@contextmanager
def scraper(node: Node, release: StepTag, place: StepTag, job: str, directory: Path) -> Iterator[Scraper]:
    """Scrapes the pods that there are now, by the PodMonitors in the namespace of the chart's release."""
    monitors = release.get("podmonitors")["items"]
    pods = json.loads(place.kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"]
    configs = [
        config for each in monitors for config in pod_monitors.scrape_configs(each, pods, interval=f"{_INTERVAL}s")
    ]
    with pod_monitors.scraping(configs, directory, node.address, node.on_network()) as url:
        # Of what happens before the first scrape no increase is seen.
        wait_until(lambda: pod_monitors.result(url, _CHANGES), "the trainer has been scraped", interval=_INTERVAL)
        yield Scraper(url, place, job)
