"""Helm, run on the chart."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

import binaries

CHART = Path(__file__).parents[2] / "charts/trimtab"


class Helm:
    """Runs helm on the chart, with the user's environment: a kubeconfig may name programs that log in.

    What helm keeps goes below `home`; which cluster it speaks to is for its flags alone to say.
    """

    def __init__(self, program: Path, home: Path):
        self.program = program
        unsaid = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBECONFIG"))}
        self.environment = unsaid | {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CONFIG", "CACHE", "DATA")}

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
