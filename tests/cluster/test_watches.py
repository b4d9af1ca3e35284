"""Watching a real API server: what is seen, and what happens when a watch asks for what is no longer known."""

from __future__ import annotations

import threading

import pytest
from kubernetes.informer.cache import ObjectCache
from programs import wait_until
from trimtab_operator.kube import informers
from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.informers import Informer
from trimtab_operator.kube.resources import SERVICE_ACCOUNTS
from workbench import Workbench, connect

pytestmark = pytest.mark.controlplane


class Forgetful(Api):
    """Resumes its first watch where nobody can: the API server answers 410 Gone."""

    num_lists = num_watches = 0

    def list(self, *arguments, **query):
        self.num_lists += 1
        return super().list(*arguments, **query)

    def watch(self, resource, namespace, read_timeout, **query):
        self.num_watches += 1
        if self.num_watches <= 2:  # the official client tries once more before it lists
            query["resourceVersion"] = "1"
        return super().watch(resource, namespace, read_timeout, **query)


def account(bench, name):
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": bench.namespace, "labels": {"watched": "yes"}},
    }


def watch(api, bench):
    changed, removed = [], []
    informer = Informer(
        api,
        SERVICE_ACCOUNTS,
        bench.namespace,
        trim=lambda each: each["metadata"].pop("managedFields", None),
        changed=lambda each: changed.append(each["metadata"]["name"]),
        removed=lambda each: removed.append(each["metadata"]["name"]),
        label_selector="watched=yes",
    )
    informer.start()
    return informer, changed, removed


def test_what_is_made_changed_and_deleted_is_seen(namespace):
    namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "before"))
    informer, changed, removed = watch(namespace.api, namespace)
    try:
        assert informer.wait_until_synced(30)
        wait_until(lambda: changed == ["before"], "what was there is seen")
        namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "after"))
        wait_until(lambda: changed == ["before", "after"], "what is made is seen")
        found = informer.get(namespace.namespace, "after")
        assert "managedFields" not in found["metadata"]
        namespace.api.delete(SERVICE_ACCOUNTS, namespace.namespace, "after", found["metadata"]["uid"])
        wait_until(lambda: removed == ["after"], "what is deleted is seen")
        assert informer.get(namespace.namespace, "after") is None
        assert informer.seconds_since_progress < 60
    finally:
        informer.stop()


def test_a_list_counts_once_the_cache_holds_it(namespace, monkeypatch):
    """Whoever decides before could take a Job that is there for one that is not."""
    listed, may_go_on = threading.Event(), threading.Event()
    replace = ObjectCache._replace_all

    def slowly(cache, items):
        listed.set()
        assert may_go_on.wait(60)
        replace(cache, items)

    monkeypatch.setattr(ObjectCache, "_replace_all", slowly)
    monkeypatch.setattr(informers, "WATCH_SECONDS", 1)
    namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "before"))
    informer, changed, _ = watch(namespace.api, namespace)
    try:
        assert listed.wait(60)
        assert not informer.wait_until_synced(0)
        may_go_on.set()
        assert informer.wait_until_synced(60)
        assert informer.get(namespace.namespace, "before") is not None
        assert changed == ["before"]
    finally:
        may_go_on.set()
        informer.stop()


def test_a_watch_that_has_expired_lists_anew_and_goes_on(own_control_plane):
    namespace = Workbench(own_control_plane, connect(own_control_plane), "watches")
    own_control_plane.kill_apiserver()  # the one that starts knows nothing of what was before it
    own_control_plane.start_apiserver()
    forgetful = Forgetful(namespace.api.client)
    namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "before"))
    informer, changed, _ = watch(forgetful, namespace)
    try:
        wait_until(lambda: "before" in changed, "the list is seen")
        wait_until(lambda: forgetful.num_lists >= 2, "the API server has refused the watch")
        namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "after"))
        wait_until(lambda: "after" in changed, "what is made after it is seen")
    finally:
        informer.stop()


def test_an_object_that_somebody_else_made_anew_is_not_deleted(namespace):
    namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "mine"))
    namespace.api.delete(SERVICE_ACCOUNTS, namespace.namespace, "mine", "another-uid")
    assert namespace.api.get(SERVICE_ACCOUNTS, namespace.namespace, "mine") is not None


class Counting(Api):
    """Counts the watches that it opens."""

    num_watches = 0

    def watch(self, resource, namespace, read_timeout, **query):
        self.num_watches += 1
        return super().watch(resource, namespace, read_timeout, **query)


def test_a_watch_that_the_server_ends_is_resumed_where_it_ended(namespace, monkeypatch):
    monkeypatch.setattr(informers, "WATCH_SECONDS", 1)
    counting = Counting(namespace.api.client)
    namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "before"))
    informer, changed, _ = watch(counting, namespace)
    try:
        wait_until(lambda: counting.num_watches == 1, "it watches")
        namespace.api.create(SERVICE_ACCOUNTS, account(namespace, "after"))
        wait_until(lambda: "after" in changed, "what is made is seen")
        wait_until(lambda: counting.num_watches >= 4, "the watch was resumed")
        assert changed == ["before", "after"], "nothing is seen twice"
    finally:
        informer.stop()


def test_what_is_written_is_answered_by_its_head_and_a_refusal_by_its_reason(namespace):
    manifest = account(namespace, "mine")
    namespace.api.create(SERVICE_ACCOUNTS, manifest)
    assert set(namespace.api.apply(SERVICE_ACCOUNTS, manifest)) == {"kind", "apiVersion", "metadata"}
    with pytest.raises(RefusedError) as refused:
        namespace.api.create(SERVICE_ACCOUNTS, manifest)
    assert refused.value.reason == "AlreadyExists"
