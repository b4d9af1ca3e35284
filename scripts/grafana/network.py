"""Of one job's network: which links hold it up, and how well they are known."""

from __future__ import annotations

from grafana.building import JOB, as_json, dashboard, lines, matrix, ranking

LINK = "max by (source, target) (trimtab_network_link_%s{" + JOB + "})"
BANDWIDTH, LATENCY = LINK % "bandwidth_bytes_per_second", LINK % "latency_seconds"
_OF_LINK = "sum by (source, target) (rate(trimtab_netmon_%s_total{" + JOB + "}[5m]))"
_LOSS = f"topk(5, {_OF_LINK % 'unanswered_echoes'} / {_OF_LINK % 'echoes'})"
_ROUND_TRIPS = "histogram_quantile(%g, sum by (le) (rate(trimtab_netmon_round_trip_seconds_bucket{" + JOB + "}[5m])))"
FIVE_SLOWEST = "See which hosts the pods are on (kubectl get pods -o wide): a host in most rows is the cause."


def network() -> str:
    """The dashboard: the links as they are now, how the slowest have changed, and what measuring costs."""
    made = dashboard("network", "Trimtab: the network of a job", "trimtab_network_revision")
    return as_json(made, (*_now(), *_over_time(), *_measuring()))


def _now() -> list[object]:
    return [
        matrix(
            "Bandwidth of every link",
            "Bps",
            BANDWIDTH,
            shows="From the worker of the row to the worker of the column.",
            bad="A row or a column apart from the others: that worker's host. One cell: the path between two.",
            low_is_bad=True,
        ),
        matrix(
            "Latency of every link",
            "s",
            LATENCY,
            shows="One way, from the worker of the row to the worker of the column.",
            bad="A row and a column apart from the others: that worker is far away; keep a job's pods in one zone.",
            low_is_bad=False,
        ),
        ranking(
            "The five narrowest links",
            "Bps",
            f"bottomk(5, {BANDWIDTH})",
            ("source", "target"),
            shows="All ranks wait for them.",
            bad=FIVE_SLOWEST,
        ),
        ranking(
            "The five farthest links",
            "s",
            f"topk(5, {LATENCY})",
            ("source", "target"),
            shows="Each message of an exchange waits for them.",
            bad=FIVE_SLOWEST,
        ),
    ]


def _over_time() -> list[object]:
    return [
        lines(
            "Bandwidth of the slowest link",
            "Bps",
            {"slowest link": f"max(trimtab_network_bandwidth_bytes_per_second{{{JOB}}})"},
            shows="As last measured.",
            bad="Half of what it was: the alert TrimtabNetworkSlow tells, and the plan should have changed.",
        ),
        lines(
            "Latency of the slowest link",
            "s",
            {"slowest link": f"max(trimtab_network_latency_seconds{{{JOB}}})"},
            shows="One way, outside the job's own queues.",
            bad="High: collectives of few messages should be in force; allow them by communication.collectives.",
        ),
        lines(
            "Queueing by link",
            "s",
            {"{{source}} to {{target}}": LINK % "queueing_seconds"},
            shows="Delay over the latency: the job's own traffic, mostly.",
            bad="High while the job sends little: somebody else fills the link.",
        ),
        lines(
            "Packet loss by link",
            "percentunit",
            {"{{source}} to {{target}}": _LOSS},
            shows="Share of echoes that were not answered, either way; the five links that lose most.",
            bad="Above 0.01 for minutes: TCP slows down on such a link. 1: that worker's monitor or host is away.",
        ),
        lines(
            "Round trips",
            "s",
            {"median": _ROUND_TRIPS % 0.5, "99th percentile": _ROUND_TRIPS % 0.99},
            shows="Of the echoes among all workers, the job's own queues included.",
            bad="A 99th percentile far above the median: some link queues, or is far away.",
        ),
    ]


def _measuring() -> list[object]:
    return [
        lines(
            "Probe budget",
            "percentunit",
            {"bandwidth tests": f"sum(rate(trimtab_netmon_bandwidth_test_seconds_total{{{JOB}}}[5m]))"},
            shows="Share of time in which bandwidth tests keep two hosts busy; spec.network.probeBudget bounds each"
            " host's.",
            bad="Near zero: changes are noticed late; raise the budget. Above a twentieth: training pays for it.",
        ),
        lines(
            "Figures too old to trust",
            "short",
            {
                "slowest link": f"max(trimtab_network_stale{{{JOB}}})",
                "links": f"sum(max by (source, target) (trimtab_network_link_bandwidth_stale{{{JOB}}}))",
            },
            shows="1 where the slowest link's figures are stale, and how many links' bandwidths are.",
            bad="Above 0 for minutes: the controller decides by old figures; see the log of the netmon containers.",
        ),
        lines(
            "Age of the oldest bandwidth",
            "s",
            {"oldest": f"max(trimtab_network_link_bandwidth_age_seconds{{{JOB}}})"},
            shows="When it was published.",
            bad="Minutes: there are more links than the probe budget can test; raise it, or lower probeInterval.",
        ),
        lines(
            "Tests that did not happen",
            "cps",
            {"{{reason}}": f"sum by (reason) (rate(trimtab_netmon_failed_bandwidth_tests_total{{{JOB}}}[5m]))"},
            shows="By reason.",
            bad="resource_exhausted now and then is two tests that met. unavailable: a monitor is away."
            " failed_precondition: the test failed; see the log of the netmon container.",
        ),
    ]
