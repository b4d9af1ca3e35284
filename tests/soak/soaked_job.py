"""The job that a soak trains: its files, its launcher, its processes, and what its ranks write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import yaml
from soak.fault_plan import NUM_RANKS
from soak.invariants import Invariants

SCRIPT = Path(__file__).parent / "soak_training.py"
#: Names the processes of one soak, in the environment that all of them inherit.
MARK = "TRIMTAB_SOAK"
#: Seconds that a rank waits for another that stands still. Ranks on a busy machine start so many seconds apart.
TIMEOUT = 20.0
CHECKPOINT_SECONDS = 2.0
NETWORK = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "Network",
    "phases": [{"duration": "24h", "latency": "1ms", "bandwidth": "1Gbps"}],
}


class SoakedJob:
    """One job in one folder; it may be started more than once."""

    def __init__(self, folder: Path, plan: str, environment: dict[str, str]) -> None:
        self.folder, self.plan = folder, plan
        self.checkpoints, self.run = folder / "checkpoints", folder / "run"
        self.output = folder / "output"
        self.invariants = Invariants(NUM_RANKS, replays=plan != "adaptive")
        self.last_steps: dict[int, dict[str, Any]] = {}
        """The newest line of each rank."""
        self._environment = {**os.environ, **environment, MARK: str(folder), "TMPDIR": str(folder / "t")}
        self._read: dict[Path, int] = {}
        self._launcher: psutil.Popen | None = None
        # A socket lies in the first, and a socket's path has a hundred letters at most.
        for path in (folder / "t", folder / "records", self.checkpoints):
            path.mkdir(parents=True)
        (folder / "job.yaml").write_text(yaml.safe_dump(self._job()))
        (folder / "network.yaml").write_text(yaml.safe_dump(NETWORK))

    def _job(self) -> dict[str, Any]:
        is_adaptive = self.plan == "adaptive"
        chosen = {"localSteps": {"max": 0}} if is_adaptive else {"policy": "Static", "plan": self.plan}
        trainer = {"name": "trainer", "command": ["python", str(SCRIPT), str(self.folder)]}
        return {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "soak"},
            "spec": {
                "workers": NUM_RANKS,
                "communication": {**chosen, "timeout": f"{TIMEOUT:g}s"},
                "checkpoint": {"path": str(self.checkpoints), "interval": f"{CHECKPOINT_SECONDS:g}s"},
                "maxRestarts": 10_000,
                "template": {"spec": {"containers": [trainer]}},
            },
        }

    # Its processes ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the launcher, which starts everything else."""
        argv = [sys.executable, "-m", "trimtab", "run", "job.yaml", "--network", "network.yaml", "--out", "run"]
        with self.output.open("ab") as output:
            self._launcher = psutil.Popen(
                argv, cwd=self.folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def launcher(self) -> psutil.Popen:
        """The process of `trimtab run`."""
        assert self._launcher is not None, "the job has been started"
        return self._launcher

    def rank(self, rank: int) -> psutil.Process:
        """Return the process that trains as this rank."""
        return self._one(f"rank {rank}", lambda words, told: told.get("RANK") == str(rank) and str(SCRIPT) in words)

    def monitor(self, worker: int) -> psutil.Process:
        """Return a worker's monitor."""
        return self._one(
            f"monitor {worker}",
            lambda words, _: "trimtab_netmon.main" in words and words[words.index("--rank") + 1] == str(worker),
        )

    def _one(self, name: str, is_it: Callable[[list[str], dict[str, str]], bool]) -> psutil.Process:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            for process in self.processes():
                try:
                    if is_it(process.cmdline(), process.environ()):
                        return process
                except (psutil.Error, ValueError):
                    continue
            time.sleep(0.1)
        raise LookupError(f"{name} is not there")

    def processes(self) -> list[psutil.Process]:
        """Return all processes of this soak that have not ended."""
        found = []
        for process in psutil.process_iter():
            try:
                is_dead = process.status() == psutil.STATUS_ZOMBIE
                if not is_dead and process.environ().get(MARK) == str(self.folder):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    # What its ranks write -----------------------------------------------------------------------------------------

    def read_records(self) -> None:
        """Read the lines that ranks have written since the last call, and compare them."""
        for path in sorted((self.folder / "records").glob("*.jsonl")):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = start + len(whole) + len(newline)
            rank = int(path.name.partition("-")[0])
            for line in map(json.loads, whole.splitlines()):
                self.invariants.add(rank, line)
                if line["time"] > self.last_steps.get(rank, {"time": 0.0})["time"]:
                    self.last_steps[rank] = line

    def all_ranks_stepped_since(self, moment: float, other_than: int | None = None) -> bool:
        """Return whether each rank has taken a step since ``moment``, of another attempt than ``other_than``."""
        self.read_records()
        return len(self.last_steps) == NUM_RANKS and all(
            line["time"] > moment and line["attempt"] != other_than for line in self.last_steps.values()
        )

    def first_step_of(self, attempt: int) -> int:
        """Return the first step that an attempt took."""
        steps = []
        for path in (self.folder / "records").glob("0-*.jsonl"):
            first = path.read_text().partition("\n")[0]
            if first and json.loads(first)["attempt"] == attempt:
                steps.append(int(json.loads(first)["step"]))
        return min(steps)

    # What it tells people -----------------------------------------------------------------------------------------

    def texts(self) -> dict[Path, int]:
        """Return the size of all that was printed so far, by file."""
        logs = [*self.run.glob("logs/*.log"), *self.run.glob("attempts/*/logs/*.log"), self.output]
        return {path: path.stat().st_size for path in logs if path.exists()}

    def said_since(self, before: dict[Path, int]) -> str:
        """Return all that was printed since `texts` returned ``before``."""
        said = []
        for path in self.texts():
            with path.open("rb") as file:
                file.seek(before.get(path, 0))
                said.append(file.read().decode(errors="replace"))
        return "\n".join(said)
