"""The command ``trimtab-operator``."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Sequence
from typing import Any

from trimtab_api.cli import Parser, whole_number
from trimtab_api.errors import UserError

from trimtab_operator.settings import NETMON_RESOURCES, Settings

#: Exit code when leadership was lost: whatever runs this starts it again, as a candidate.
LOST_LEADERSHIP = 3
#: Objects that are made, less those that are freed, between two runs of the cyclic garbage collector.
_OBJECTS_PER_COLLECTION = 100_000
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
#: Valid names of Secrets, by Kubernetes' rules.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop or until leadership is lost; return the exit code.

    The code is 0 if the operator was told to stop, and 2 for a user's mistake, which is printed in one line. The
    process exits at once when it loses leadership.
    """
    try:
        settings = read_settings(argv)
    except UserError as error:
        print(f"trimtab-operator: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    from trimtab_operator.kube.api import connect
    from trimtab_operator.operator import Operator

    _collect_seldom()
    stop = threading.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: stop.set())
    operator = Operator(connect(num_connections=settings.num_workers + 8), settings, _exit_at_once)
    operator.start()
    logging.info("health and metrics on port %d", operator.health.port)
    stop.wait()
    operator.stop()
    return 0


def read_settings(argv: Sequence[str] | None) -> Settings:
    """Return the settings that the flags give.

    Raises:
        UserError: If a flag or its value is wrong.
    """
    parser = Parser(prog="trimtab-operator", description="Turns TrainingJobs into pods on Kubernetes.")
    parser.add_argument(
        "--namespace", default=_own_namespace(), help="where its lease is kept (default: where it runs)"
    )
    parser.add_argument("--watch-namespace", help="look after the jobs of this namespace alone (default: of all)")
    parser.add_argument("--netmon-image", required=True, help="image of the network monitor beside every trainer")
    parser.add_argument(
        "--netmon-resources",
        type=_resources,
        default=NETMON_RESOURCES,
        help=f"its requests and limits, as JSON (default: {json.dumps(NETMON_RESOURCES)})",
    )
    parser.add_argument(
        "--netmon-pull-policy",
        type=_pull_policy,
        help="when a node pulls that image: Always, IfNotPresent or Never (default: Kubernetes')",
    )
    parser.add_argument(
        "--netmon-pull-secrets",
        type=_names,
        default=(),
        help="Secrets in each job's namespace to pull that image with, such as registry,mirror (default: none)",
    )
    parser.add_argument(
        "--scraper-namespace", default="monitoring", help="whose pods may read monitors' metrics (default: monitoring)"
    )
    parser.add_argument(
        "--workers",
        type=whole_number("--workers", 1, 1000),
        default=8,
        help="threads that look after jobs (default: 8)",
    )
    parser.add_argument(
        "--port",
        type=whole_number("--port", 0, 65535),
        default=8080,
        help="of health and metrics (default: 8080; 0: any)",
    )
    parser.add_argument(
        "--most-job-series",
        type=whole_number("--most-job-series", 0, 1_000_000),
        default=1000,
        help="metrics of each job while there are at most so many jobs (default: 1000; 0: never)",
    )
    parser.add_argument(
        "--status-interval",
        type=whole_number("--status-interval", 1, 3600),
        default=60,
        help="seconds between two writes of a job's status that bring only new figures (default: 60)",
    )
    parser.add_argument(
        "--requests-per-second",
        type=whole_number("--requests-per-second", 1, 10_000),
        default=300,
        help="most requests to the API server, of which twice as many may be a burst (default: 300)",
    )
    arguments = parser.parse_args(argv)
    return Settings(
        namespace=arguments.namespace,
        watched_namespace=arguments.watch_namespace,
        netmon_image=arguments.netmon_image,
        netmon_pull_policy=arguments.netmon_pull_policy or "",
        netmon_pull_secrets=arguments.netmon_pull_secrets,
        netmon_resources=arguments.netmon_resources,
        scraper_namespace=arguments.scraper_namespace,
        num_workers=arguments.workers,
        port=arguments.port,
        most_job_series=arguments.most_job_series,
        status_interval=arguments.status_interval,
        requests_per_second=arguments.requests_per_second,
        identity=f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
    )


def _resources(text: str) -> dict[str, Any]:
    """Parse requests and limits, whose names and amounts the API server judges.

    Raises:
        UserError: If the text is not an object of requests and limits.
    """
    remedy = 'write JSON such as {"requests": {"cpu": "50m"}, "limits": {"memory": "256Mi"}}'
    try:
        resources = json.loads(text)
    except ValueError:
        resources = None
    kinds = {"requests", "limits"}
    if not isinstance(resources, dict) or not kinds >= set(resources) or not all(map(_is_amounts, resources.values())):
        raise UserError(remedy, field="--netmon-resources", value=text)
    return resources


def _pull_policy(text: str) -> str:
    """Return a pull policy.

    Raises:
        UserError: If Kubernetes knows no such policy.
    """
    if text not in _PULL_POLICIES:
        raise UserError(f"write one of {', '.join(_PULL_POLICIES)}", field="--netmon-pull-policy", value=text)
    return text


def _names(text: str) -> tuple[str, ...]:
    """Split names of Secrets.

    Raises:
        UserError: If a name is not valid.
    """
    names = tuple(text.split(",")) if text else ()
    if not all(map(_NAME.fullmatch, names)):
        raise UserError(
            "is no list of Secrets; write their names with commas between, such as a,b",
            field="--netmon-pull-secrets",
            value=text,
        )
    return names


def _is_amounts(amounts: object) -> bool:
    return isinstance(amounts, dict) and all(isinstance(amount, str | int | float) for amount in amounts.values())


def _own_namespace() -> str:
    """Return the namespace of the pod this runs in; ``default`` outside a cluster."""
    try:
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
            return file.read().strip()
    except OSError:
        return "default"


def _collect_seldom() -> None:
    """Make the cyclic garbage collector run seldom, and skip the objects that exist by now.

    By default it visits all objects again and again while a large answer is decoded. That takes sixteen times as long
    as the decoding, and no other thread runs meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 20, 20)


def _exit_at_once() -> None:
    """Exit without finishing what is half done: another process may lead from now on."""
    logging.error("leadership is lost")
    os._exit(LOST_LEADERSHIP)


if __name__ == "__main__":
    sys.exit(main())
