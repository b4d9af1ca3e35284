"""A namespace of a cluster, and what a user does there with kubectl."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from programs import wait_until


class Place:
    """One namespace."""

    def __init__(self, kubectl: Path, kubeconfig: Path, namespace: str) -> None:
        self._command = (str(kubectl), f"--kubeconfig={kubeconfig}")
        self.namespace = namespace

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """What kubectl prints, asked about this namespace. Raises RuntimeError with its complaint."""
        command = [*self._command, f"--namespace={self.namespace}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def get(self, *what: str) -> dict[str, Any]:
        """An object or a list of them; empty if there is no such object."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "--ignore-not-found", "-o", "json") or "{}")
        return found

    def wait(self, what: str, condition: str, seconds: float = 60.0) -> None:
        """Wait as ``kubectl wait`` does. Raises RuntimeError that tells how the object is when the time is up."""
        try:
            self.kubectl("wait", f"--for={condition}", f"--timeout={seconds:g}s", what, timeout=seconds + 30)
        except RuntimeError as error:
            logs = self.kubectl("logs", what, "--all-containers", "--tail=20") if what.startswith("pod/") else ""
            raise RuntimeError(f"{error}\n{self.kubectl('describe', what)}\n{logs}") from None

    def remove(self) -> None:
        """Delete the namespace and all in it, and wait until it has gone."""
        self.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")
        wait_until(lambda: not self.get("namespace", self.namespace), f"{self.namespace} is gone", 120, interval=0.5)
