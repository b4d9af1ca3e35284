"""Watching an API server that answers nothing but errors."""

import time

from fake_api import fake_api
from kubernetes.client import ApiClient, Configuration
from trimtab_operator.cluster.api import Api
from trimtab_operator.cluster.informers import Informer
from trimtab_operator.cluster.resources import PODS


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
