"""What the operator stands: a thousand jobs at once, ten a second, and how soon it tells that one has finished.

The figures are printed as JSON. The benchmark runs the operator as a process of its own, as few rights as in
the tests, against a control plane on this machine; etcd, API server and controller manager share its cores.

Needs the control plane's programs (make control-plane); takes three minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from control_plane import ControlPlane
from kubernetes.watch.watch import iter_resp_lines
from programs import wait_until
from results import keep, record
from trimtab_operator.kube.api import Unreachable
from trimtab_operator.kube.resources import JOBS, TRAINING_JOBS, Object
from workbench import Operators, Workbench, connect, install

#: Jobs a second in the second part.
_PACE = 10.0


class Sightings:
    """When each object of a collection was first seen in some condition, by the clock of this process."""

    def __init__(self, bench: Workbench, resource: Any, holds: Any) -> None:
        self.at: dict[str, float] = {}
        self._changed = threading.Condition()
        self._holds = holds
        version = bench.api.list(resource, bench.namespace)["metadata"]["resourceVersion"]
        self._stream = bench.api.watch(
            resource, bench.namespace, read_timeout=900, resourceVersion=version, timeoutSeconds=900
        )
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, count: int, seconds: float) -> None:
        """Until so many were seen."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.at) >= count, timeout=seconds):
                raise TimeoutError(f"{len(self.at)} of {count} within {seconds:g} s")

    def _read(self) -> None:
        with contextlib.suppress(*Unreachable):  # the API server ends before this does
            for line in iter_resp_lines(self._stream):
                seen: Object = json.loads(line)["object"]
                name = seen["metadata"]["name"]
                if name not in self.at and self._holds(seen):
                    with self._changed:
                        self.at[name] = time.monotonic()
                        self._changed.notify_all()


def measure(num_jobs: int, num_paced: int, directory: Path) -> dict[str, Any]:
    """All figures. Times are seconds, memory is MB (10^6 bytes)."""
    with ControlPlane(directory) as control_plane:
        install(control_plane)
        operators = Operators(control_plane, directory)
        process = psutil.Process(operators.start().pid)
        api = connect(control_plane)
        try:
            watched = {name: psutil.Process(each.pid) for name, each in control_plane.programs.items()}
            watched |= {"operator": process, "this bench": psutil.Process()}
            bench = Workbench(control_plane, api, "burst")
            before = _cpu_seconds(watched)
            burst = _burst(bench, num_jobs)
            after = _cpu_seconds(watched)
            burst |= {f"burst_cpu_seconds of {name}": after[name] - before[name] for name in after}
            wait_until(lambda: _have_settled(bench), "every job's pod is counted", seconds=300, interval=2)
            paced = _paced(Workbench(control_plane, api, "paced"), num_paced)
            memory = process.memory_info().rss / 1e6
            cpu = process.cpu_times()
        finally:
            operators.stop()
    figures = {**burst, **paced, "operator_rss_mb": memory, "operator_cpu_seconds": cpu.user + cpu.system}
    return {name: round(value, 3) for name, value in figures.items()}


def _burst(bench: Workbench, num_jobs: int) -> dict[str, float]:
    """Many jobs as fast as they can be created; the Job is the last child of each."""
    jobs = Sightings(bench, JOBS, lambda job: True)
    begun = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: bench.create(f"job-{number}", workers=1), range(num_jobs)))
    created = time.monotonic() - begun
    jobs.wait_for(num_jobs, 300)
    elapsed = time.monotonic() - begun
    return {
        "jobs": num_jobs,
        "creating_seconds": created,
        "children_seconds": elapsed,
        "children_jobs_per_second": num_jobs / elapsed,
    }


def _paced(bench: Workbench, num_jobs: int) -> dict[str, float]:
    """A steady pace; then every job finishes, and the status must tell."""
    jobs = Sightings(bench, JOBS, lambda job: True)
    finished = Sightings(bench, TRAINING_JOBS, lambda job: job.get("status", {}).get("state") == "Succeeded")
    complete = Sightings(bench, JOBS, _is_complete)
    asked: dict[str, float] = {}
    begun = time.monotonic()
    for number in range(num_jobs):
        time.sleep(max(0.0, begun + number / _PACE - time.monotonic()))
        name = f"job-{number}"
        asked[name] = time.monotonic()
        bench.create(name, workers=1)
    jobs.wait_for(num_jobs, 120)
    for number in range(num_jobs):
        bench.play_succeeded(*bench.wait_for_pods(f"job-{number}", 1))
    complete.wait_for(num_jobs, 120)
    finished.wait_for(num_jobs, 120)
    to_job = sorted(jobs.at[name] - asked[name] for name in asked)
    to_status = sorted(finished.at[name] - complete.at[name] for name in asked)
    return {
        "paced_jobs": num_jobs,
        "create_to_job_p50_seconds": to_job[len(to_job) // 2],
        "create_to_job_p99_seconds": to_job[int(0.99 * (len(to_job) - 1))],
        "finished_to_status_p50_seconds": to_status[len(to_status) // 2],
        "finished_to_status_max_seconds": to_status[-1],
    }


def _cpu_seconds(watched: dict[str, psutil.Process]) -> dict[str, float]:
    """What each program has used of the machine's cores so far, and what everything else on it has."""
    used = {name: sum(each.cpu_times()[:2]) for name, each in watched.items()}
    machine = psutil.cpu_times()
    busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
    return {**used, "all others": busy - sum(used.values())}


def _have_settled(bench: Workbench) -> bool:
    """Whether every status tells of the pod that the Job controller has made."""
    jobs = bench.api.list(TRAINING_JOBS, bench.namespace)["items"]
    return all(job.get("status", {}).get("workers", {}).get("active") == 1 for job in jobs)


def _is_complete(job: Object) -> bool:
    """Whether the Job controller has said so: SuccessCriteriaMet is its first word of it."""
    said = {each["type"] for each in job.get("status", {}).get("conditions", ()) if each["status"] == "True"}
    return bool(said & {"SuccessCriteriaMet", "Complete"})


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs created at once (default: 1000)")
    parser.add_argument("--paced-jobs", type=int, default=200, help="jobs created ten a second (default: 200)")
    parser.add_argument("--keep", type=Path, help="directory for logs (default: none are kept)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = arguments.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        begun = datetime.now()
        figures = measure(arguments.jobs, arguments.paced_jobs, directory)
    record("operator-children", figures["children_jobs_per_second"])
    record("operator-create", figures["create_to_job_p99_seconds"])
    record("operator-status", figures["finished_to_status_max_seconds"])
    record("operator-memory", figures["operator_rss_mb"])
    keep(**figures)
    print(f"took {(datetime.now() - begun).total_seconds():.0f} s", file=sys.stderr)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
