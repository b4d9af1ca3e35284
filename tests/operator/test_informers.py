"""Watching an API server that answers nothing but errors."""

import time

from fake_api import fake_api
from kubernetes.client import ApiClient, Configuration
from trimtab_operator.kube.api import Api
from trimtab_operator.kube.informers import Informer
from trimtab_operator.kube.resources import PODS


def test_an_api_server_that_is_away_leaves_nobody_stuck_who_goes_on_asking():
    with fake_api() as server:
        server.status, server.body = 503, {"reason": "ServiceUnavailable", "message": "away"}
        api = Api(ApiClient(Configuration(host=server.url)))
        informer = Informer(api, PODS, "team", lambda _: None, lambda _: None, lambda _: None)
        informer.start()
        deadline = time.monotonic() + 30
        while len(server.asked) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        informer.stop()
    assert len(server.asked) >= 3
    assert informer.seconds_since_turn < informer.seconds_since_progress, "no answer, and yet it gets on"


def test_a_watch_resumes_at_the_version_of_the_list_and_not_of_what_is_in_it():
    with fake_api() as server:
        listed = {"metadata": {"namespace": "team", "name": "pod", "resourceVersion": "3"}}
        server.body = {"items": [listed], "metadata": {"resourceVersion": "9"}}
        informer = Informer(Api(ApiClient(Configuration(host=server.url))), PODS, "team", *[lambda _: None] * 3)
        informer.start()
        deadline = time.monotonic() + 30
        while len(server.asked) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        informer.stop()
    assert informer.get("team", "pod") == listed
    watched = server.asked[1][0]
    assert "watch=true" in watched
    assert "resourceVersion=9" in watched
