"""A reconciler's cache that is never old, so that a test can be one look at a time."""

from __future__ import annotations

from trimtab_operator.kube.resources import PODS
from workbench import Workbench


class Seen:
    """What watches would have seen, asked for."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench

    def job(self, namespace, name):
        return self.bench.job(name)

    def batch_job(self, namespace, name):
        return self.bench.child(name)

    def pods(self, namespace, name):
        return self.bench.api.list(PODS, namespace, labelSelector=f"batch.kubernetes.io/job-name={name}")["items"]
