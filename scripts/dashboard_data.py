"""Data for the pictures of dashboards and of the terminal panel: a real run, scraped by a real Prometheus.

`examples/digits.yaml` trains on `examples/networks/changing.yaml`, with more epochs than it ends in time. Prometheus
scrapes the trainer, the monitors and an operator whose API server knows this one job. Root and /dev/net/tun are needed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/chart"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/cluster"))

import dashboards
import prometheus
from programs import Program, wait_until
from rich.console import Console
from trimtab.cli.progress import Progress
from trimtab.launch.environment.ports import free_ports
from trimtab.run_files.layout import RunDirectory

ROOT = Path(__file__).resolve().parents[1]
SCRAPES = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"}}
#: Seconds between two points of a line, and the window of rates.
STEP, RATE_WINDOW = 2, "20s"
#: Asks for everything in one process on the host where Prometheus is: [path, parameters] in, results out, as JSON.
ASK = """
import json, sys, urllib.parse, urllib.request
def ask(path, parameters):
    url = f"http://127.0.0.1:{sys.argv[1]}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]["result"]
print(json.dumps([ask(*asked) for asked in json.load(sys.stdin)]))
"""


def collect(directory: Path, seconds: float) -> dict[str, Any]:
    """Train for so many seconds, write the terminal panel's SVG, and return what the dashboards' panels ask for."""
    directory.mkdir(parents=True, exist_ok=True)
    job = yaml.safe_load((ROOT / "examples/digits.yaml").read_text())
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["--epochs", "1000"]
    del job["spec"]["target"]
    job["spec"]["checkpoint"] = {"path": str(directory / "checkpoints"), "interval": "20s"}
    (directory / "job.yaml").write_text(yaml.safe_dump(job))
    of_run, of_operator, of_prometheus = free_ports(3)
    run = directory / "run"
    argv = ["-m", "trimtab", "run", directory / "job.yaml", "--out", run, f"--metrics-port={of_run}"]
    argv += ["--network", ROOT / "examples/networks/changing.yaml"]
    programs = [Program([sys.executable, *argv], directory / "run.log")]
    launcher = programs[0]
    panel = Progress(1)
    panel.start("adaptive", RunDirectory(run))
    try:
        wait_until((run / "logs/rank-0.log").exists, lambda: f"trainers start: {launcher.last_lines()}", seconds=120)
        on_host = _host_command(launcher.pid)
        monitors = [f"10.77.0.{worker + 1}:{of_run + 1 + worker}" for worker in range(job["spec"]["workers"])]
        labels = {"namespace": dashboards.NAMESPACE, "trimtab_dev_job_name": dashboards.JOB}
        targets = {
            "job": [{"targets": [f"127.0.0.1:{of_run}", *monitors], "labels": labels}],
            "operator": [{"targets": [f"127.0.0.1:{of_operator}"]}],
        }
        jobs = [{"job_name": name, "static_configs": configs} for name, configs in targets.items()]
        (directory / "prometheus.yaml").write_text(yaml.safe_dump({**SCRAPES, "scrape_configs": jobs}))
        flags = [f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'data'}"]
        flags += [f"--web.listen-address=127.0.0.1:{of_prometheus}"]
        operator = [sys.executable, ROOT / "tests/chart/operator_of_one_job.py", of_operator, directory]
        environment = {"KUBECONFIG": str(directory / "kubeconfig")}
        scraped = [sys.executable, "-m", "trimtab", "metrics", run, f"--port={of_run}"]
        programs += [
            Program([*on_host, *map(str, scraped)], directory / "metrics.log"),
            Program([*on_host, *map(str, operator)], directory / "operator.log", environment),
            Program([*on_host, str(prometheus.obtain("prometheus")), *flags], directory / "prometheus.log"),
        ]
        wait_until((run / "started").exists, lambda: f"training starts: {launcher.last_lines()}", seconds=300)
        begun = time.time()
        while time.time() < begun + seconds:
            time.sleep(1)
            panel.update()
        _save_panel(panel, directory / "terminal.svg")
        return _ask_panels(on_host, of_prometheus, begun - 10, time.time())
    finally:
        for program in reversed(programs[1:]):
            program.kill()
        launcher.process.send_signal(signal.SIGINT)
        launcher.process.wait(60)


def _host_command(launcher_pid: int) -> list[str]:
    """Return what starts a program on the emulated host of worker 0."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    (namespace,) = (name for name in listed.split() if f"-{launcher_pid}-" in name and name.endswith("-0"))
    return ["nsenter", f"--net=/run/netns/{namespace}", "--"]


def _save_panel(panel: Progress, file: Path) -> None:
    with (file.parent / "panel.txt").open("w") as plain:
        console = Console(record=True, width=90, file=plain, force_terminal=True, color_system="truecolor")
        console.print(panel._panel())
        console.save_svg(str(file), title="trimtab run digits.yaml")


def _ask_panels(on_host: list[str], port: int, begin: float, end: float) -> dict[str, Any]:
    """Return the results of each panel's queries, by dashboard and panel."""
    places, asked = [], []
    for file in dashboards.DASHBOARDS:
        for number, panel in enumerate(json.loads(file.read_text())["panels"]):
            for target in panel.get("targets", ()):
                query = target["expr"].replace("$__rate_interval", RATE_WINDOW).replace("[5m]", f"[{RATE_WINDOW}]")
                query = query.replace("$namespace", dashboards.NAMESPACE).replace("$job", dashboards.JOB)
                over_time = {"query": query, "start": begin, "end": end, "step": STEP}
                is_table = panel["type"] == "table"
                asked.append(("query", {"query": query, "time": end}) if is_table else ("query_range", over_time))
                places.append((file.stem, number, target.get("legendFormat", "")))
    argv = [*on_host, sys.executable, "-c", ASK, str(port)]
    done = subprocess.run(argv, input=json.dumps(asked), capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, Any] = {"begin": begin, "end": end, "panels": []}
    for (dashboard, number, legend), result in zip(places, json.loads(done.stdout), strict=True):
        found["panels"].append({"dashboard": dashboard, "panel": number, "legend": legend, "result": result})
    return found
