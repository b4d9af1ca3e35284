"""The chart, installed under a name."""

from __future__ import annotations

from pathlib import Path

from helm_chart import CHART, Helm


class Release:
    """Trimtab, installed by helm in a namespace of its own."""

    NAME = "trimtab"

    def __init__(self, helm: Helm, kubeconfig: Path, namespace: str) -> None:
        self._helm = helm
        self._where = ("--namespace", namespace, "--kubeconfig", str(kubeconfig))
        self._is_installed = False
        self.namespace = namespace

    def install(self, *flags: str) -> None:
        """Install it and wait until the operator is ready."""
        self._is_installed = True
        self._run("install", self.NAME, str(CHART), "--create-namespace", "--wait", "--timeout=180s", *flags)

    def test(self) -> str:
        """What ``helm test`` prints; it trains a job."""
        return self._run("test", self.NAME, "--timeout=660s")

    def remove(self) -> str:
        """Uninstall it, unless that was done; returns what helm says of what it keeps."""
        if not self._is_installed:
            return ""
        self._is_installed = False
        return self._run("uninstall", self.NAME, "--wait", "--timeout=120s")

    def _run(self, *arguments: str) -> str:
        done = self._helm.run(*arguments, *self._where, timeout=900)
        if done.returncode != 0:
            raise RuntimeError(f"helm {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout
