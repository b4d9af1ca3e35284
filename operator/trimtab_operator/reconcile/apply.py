"""The children that a Job's pods need: created, and kept as they should be."""

from __future__ import annotations

from trimtab_operator.children.claim import claim, claim_name, claim_problem
from trimtab_operator.children.keepers import keepers
from trimtab_operator.children.network import network_policy, service
from trimtab_operator.children.owned import name_conflict, tampered
from trimtab_operator.children.secret import is_intact, secret
from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.resources import CLAIMS, Object, controller_uid, resource_of
from trimtab_operator.settings import Settings


def sync_children(api: Api, observed: ObservedState, settings: Settings) -> str | None:
    """Create missing children and apply existing ones; return the reason that blocks this, if there is one.

    A new job's children are created without a look, for it has none. A child that may exist is looked for first: a
    quota would count it twice, and refuse it, before the API server finds that it exists. An object of the same name
    that belongs to somebody else is left alone: server-side apply would merge into it, and deleting the job would then
    delete it.
    """
    job, namespace, uid = observed.job, observed.namespace, observed.uid
    for manifest in (
        service(job, namespace, uid, observed.status.restarts),
        network_policy(job, namespace, uid, settings),
        secret(job, namespace, uid, observed.now),
        *keepers(job, namespace, uid),
    ):
        blocking_reason = _sync(api, manifest, uid, is_new=observed.status.observed_generation == 0)
        if blocking_reason:
            return blocking_reason
    return _sync_claim(api, observed)


def _sync_claim(api: Api, observed: ObservedState) -> str | None:
    """Create the claim for checkpoints, or look for the user's; return the reason that blocks the job, if any."""
    job, namespace, uid = observed.job, observed.namespace, observed.uid
    manifest = claim(job, namespace, uid)
    if manifest is not None:
        return _sync(api, manifest, uid, is_new=observed.status.observed_generation == 0)
    name = claim_name(job)
    return None if name is None else claim_problem(name, namespace, api.get(CLAIMS, namespace, name))


def _sync(api: Api, manifest: Object, uid: str, is_new: bool) -> str | None:
    resource, metadata = resource_of(manifest), manifest["metadata"]
    present = None if is_new else api.get(resource, metadata["namespace"], metadata["name"])
    if present is None:
        try:
            api.create(resource, manifest)
            return None
        except RefusedError as refusal:
            if refusal.reason != "AlreadyExists":
                raise
        present = api.get(resource, metadata["namespace"], metadata["name"])
    if present is None:
        return name_conflict(resource.kind, metadata["name"], is_deleting=True)
    if controller_uid(present) != uid:
        return name_conflict(resource.kind, metadata["name"], "deletionTimestamp" in present["metadata"])
    if resource is CLAIMS:  # the user may have made it larger
        is_deleting = "deletionTimestamp" in present["metadata"]
        return name_conflict(resource.kind, metadata["name"], is_deleting=True) if is_deleting else None
    if not present.get("immutable"):
        api.apply(resource, manifest)
    elif not is_intact(present):  # the Secret alone is immutable
        return tampered(resource.kind, metadata["name"])
    return None
