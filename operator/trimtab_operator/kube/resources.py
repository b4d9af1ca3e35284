"""The kinds of object that the operator reads or writes, and their places in the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab_api.trainingjob.types import API_VERSION, KIND

#: An object of the API as plain data.
Object = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One kind of object."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the path of a collection (every namespace's if there is none), of one object, or of a part of it."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        parts = [root + self.api_version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


TRAINING_JOBS = Resource(API_VERSION, KIND, "trainingjobs")
JOBS = Resource("batch/v1", "Job", "jobs")
PODS = Resource("v1", "Pod", "pods")
SERVICES = Resource("v1", "Service", "services")
SECRETS = Resource("v1", "Secret", "secrets")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
SERVICE_ACCOUNTS = Resource("v1", "ServiceAccount", "serviceaccounts")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
EVENTS = Resource("v1", "Event", "events")
NODES = Resource("v1", "Node", "nodes")
LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")

_BY_KIND = {each.kind: each for each in (JOBS, PODS, SERVICES, SECRETS, CLAIMS, STATEFUL_SETS, NETWORK_POLICIES)}


def controller_uid(found: Object) -> str:
    """Return the uid of the object that controls this one; empty if none does."""
    return _of_controller(found, "uid")


def controller_name(found: Object) -> str:
    """Return the name of the object that controls this one; empty if none does."""
    return _of_controller(found, "name")


def controller_kind(found: Object) -> str:
    """Return the kind of the object that controls this one; empty if none does."""
    return _of_controller(found, "kind")


def _of_controller(found: Object, field: str) -> str:
    owners = found["metadata"].get("ownerReferences", ())
    return next((str(owner.get(field, "")) for owner in owners if owner.get("controller")), "")


def resource_of(manifest: Object) -> Resource:
    """Return the resource of a manifest, by its kind."""
    return _BY_KIND[manifest["kind"]]


def object_key(namespace: str, name: str) -> str:
    """Return the key of an object among all of its kind, as in the work queue."""
    return f"{namespace}/{name}"
