"""The definition of TrainingJob, which is the cluster's: is it there already, and may it go again?"""

from __future__ import annotations

import json

from place import StepTag

NAME = "trainingjobs.trimtab.dev"


def why_taken(place: StepTag) -> str | None:
    """None where a cluster has no Trimtab; otherwise what it has of it and what to do, in one sentence."""
    found = place.get("crd", NAME)
    if not found:
        return None
    owner = found["metadata"].get("annotations", {})
    release = "/".join(owner.get(f"meta.helm.sh/release-{part}", "") for part in ("namespace", "name")).strip("/")
    by = f", by the release {release}" if release else ""
    return (
        f"this cluster has Trimtab already ({NAME} is defined there{by}), "
        f"and these tests install their own: give them a cluster without, or uninstall it and delete that definition "
        f"with all its jobs (kubectl delete crd {NAME})"
    )


def remove_if_unused(place: StepTag) -> list[str]:
    """Delete it where no TrainingJob is left in any namespace; returns those that are, as NAMESPACE/NAME."""
    if not place.get("crd", NAME):
        return []
    jobs = json.loads(place.kubectl("get", "tj", "--all-namespaces", "-o", "json"))["items"]
    if not jobs:
        place.kubectl("delete", "crd", NAME, "--timeout=60s")
    return [f"{job['metadata']['namespace']}/{job['metadata']['name']}" for job in jobs]
