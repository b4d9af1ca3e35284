"""What users write: jobs, networks and plans; and the files of a run."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

from target import Target, told
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.layout import RunDirectory, resolved
from trimtab.run_files.reader import read_run
from trimtab.status.status_reader import StatusReader
from trimtab_api.catalogue.plan_text import parse_plan_text
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob, load_training_job
from trimtab_api.trainingjob.load import read_training_job
from trimtab_netmon.emulate.network_file import load_network, parse_network, write_network

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def folder() -> Path:
    """Return a folder of this process for files that are parsed, in memory if the machine has such a place."""
    memory = Path("/dev/shm")
    kept = tempfile.TemporaryDirectory(prefix="trimtab-fuzz-", dir=memory if memory.is_dir() else None)
    _KEPT.append(kept)
    return Path(kept.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def feed_job(data: bytes) -> None:
    """Load a TrainingJob; what is accepted comes back from its own resolved form."""
    file = folder() / "job.yaml"
    file.write_bytes(data)
    try:
        job = load_training_job(file)
    except UserError as error:
        told(error)
        return
    again = read_training_job(json.loads(json.dumps(resolved(job))))
    assert again == job, "the resolved job is another"


def feed_network(data: bytes) -> None:
    """Load a network file; what is accepted can be written, and read again."""
    file = folder() / "network.yaml"
    file.write_bytes(data)
    try:
        network = load_network(file)
    except UserError as error:
        told(error)
        return
    again = parse_network(write_network(network))
    assert len(again.phases) == len(network.phases)


def feed_plan(data: bytes) -> None:
    """Parse a plan's text; the normal text of an accepted plan is a fixed point."""
    text = data.decode(errors="replace")
    try:
        parsed = parse_plan_text(text)
        plan = Plan.parse(text, FusionPlan((0, 100)))
    except UserError as error:
        told(error)
        return
    assert parse_plan_text(parsed.text) == parsed
    assert Plan.parse(plan.name, FusionPlan((0, 100))).name == plan.name


def feed_run(data: bytes) -> None:
    """Read a run of which one file is foreign; its first byte says which, the rest is the file."""
    directory = RunDirectory(folder() / "run")
    directory.path.mkdir(exist_ok=True)
    files = _run_files()
    number = data[0] % len(files) if data else 0
    for index, (name, content) in enumerate(files.items()):
        (directory.path / name).write_bytes(data[1:] if index == number else content)
    for read in (lambda: read_run(directory), StatusReader(directory, _job()).read):
        try:
            read()
        except UserError as error:
            told(error)


@cache
def _job() -> TrainingJob:
    return load_training_job(EXAMPLES / "digits.yaml")


@cache
def _run_files() -> dict[str, bytes]:
    """Return the files of a small run, by name."""
    from run_lines import DECISION, STEP

    directory = RunDirectory(Path())
    evaluation = {"event": "evaluation", "step": 1, "time": 1.0, "accuracy": 0.5}
    checkpoint = {"event": "checkpoint", "step": 1, "time": 1.0, "bytes": 7, "problem": ""}
    link = {"source": 0, "target": 1, "latency": 0.01, "bandwidth": 1e6}
    lines = [STEP, {**STEP, "step": 1, "time": 1.0}, evaluation, checkpoint]
    return {
        directory.metrics.name: b"".join(json.dumps(line).encode() + b"\n" for line in lines),
        directory.decisions.name: json.dumps(DECISION).encode() + b"\n",
        directory.result.name: json.dumps(
            {"state": "succeeded", "message": "", "plan": "dense", "started": 0.0, "seconds": 2.0, "restarts": 0}
        ).encode(),
        directory.job.name: json.dumps(resolved(_job())).encode(),
        directory.phases.name: json.dumps({"time": 0.0, "latency": 0.01, "bandwidth": 1e6}).encode() + b"\n",
        directory.links.name: json.dumps({"links": [link]}).encode(),
    }


def examples(at: Path) -> list[bytes]:
    """Return the YAML files of a folder."""
    return [path.read_bytes() for path in sorted(at.glob("*.yaml"))]


def plans() -> list[bytes]:
    """Return plans of every axis."""
    return [
        b"dense", b"0.01/all-gather/sparsifier=topk", b"dense-ring:per_host=1",
        b"0.01/spardl:per_host=1:residual=local/source=update:steps=8",
        b"0.05/all-gather/fusion=fixed:bytes=4000000:selection=ahead/schedule=overlap/values=int8",
    ]  # fmt: skip


TARGETS = [
    Target("job", feed_job, lambda: [path.read_bytes() for path in sorted(EXAMPLES.glob("*.yaml"))], 150),
    Target(
        "network", feed_network, lambda: [p.read_bytes() for p in sorted((EXAMPLES / "networks").glob("*.yaml"))], 200
    ),
    Target("plan", feed_plan, plans),
    Target("run", feed_run, lambda: [bytes([i]) + content for i, content in enumerate(_run_files().values())], 300),
]
