"""Helm, run on the chart."""

import subprocess
import sys
from pathlib import Path

import yaml

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

import binaries

CHART = Path(__file__).parents[2] / "charts/trimtab"


class Helm:
    """Runs helm on the chart."""

    def __init__(self, program: Path, home: Path):
        self.program = program
        self.environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def run(self, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self.environment,
        )

    def template(self, *settings: str, name: str = "trimtab", namespace: str = "trimtab-system") -> list[dict]:
        flags = [word for setting in settings for word in ("--set-json", setting)]
        done = self.run(
            "template",
            name,
            str(CHART),
            "--namespace",
            namespace,
            "--kube-version",
            binaries.KUBERNETES_VERSION,
            *flags,
        )
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.safe_load_all(done.stdout) if each]
