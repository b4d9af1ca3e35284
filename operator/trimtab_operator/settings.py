"""Settings of the operator, given when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab_operator.kube.resources import Object

#: Default resources of a monitor, which is idle but for a test now and then.
NETMON_RESOURCES: Object = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


@dataclass(frozen=True)
class Settings:
    """The settings of one operator: its place in its cluster, and its additions to pods."""

    namespace: str
    """The namespace in which the operator runs and keeps its lease."""
    watched_namespace: str | None
    """The only namespace whose jobs it looks after; None: all of them."""
    netmon_image: str
    """Image of the network monitor beside every trainer."""
    scraper_namespace: str
    """Namespace whose pods may read the monitors' metrics."""
    num_workers: int
    """Threads that look after jobs."""
    port: int
    """The port for health and metrics; 0: any free port."""
    identity: str
    """This process's name in the election."""
    most_job_series: int = 1000
    """Jobs up to which each has metrics of its own."""
    netmon_pull_policy: str = ""
    """When a node pulls the monitor's image; empty: as Kubernetes does by default."""
    netmon_pull_secrets: tuple[str, ...] = ()
    """Names of the Secrets, in each job's namespace, to pull the monitor's image with."""
    netmon_resources: Object = field(default_factory=lambda: NETMON_RESOURCES)
    """Requests and limits of the network monitor, as Kubernetes spells them."""
    status_interval: float = 60.0
    """Least seconds between two writes of a job's status that bring only new figures of training."""
    requests_per_second: float = 300.0
    """Most requests to the API server, watches and leases left out; twice as many may be made in a burst."""
