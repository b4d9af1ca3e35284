"""``kubectl apply -f examples/digits.yaml``, the very file: it trains to its end, and goes without a trace."""

from __future__ import annotations

import pytest
from images import ROOT
from marks import WITH_TRIMTAB
from place import condition, has_ended
from programs import wait_until

pytestmark = WITH_TRIMTAB

FILE = ROOT / "examples/digits.yaml"
#: Six epochs of 1437 images, for four ranks, 16 at a time.
STEPS = 6 * 22


def test_the_file_as_it_stands_trains_to_its_end_and_goes_without_a_trace(ground, place, shown):
    if not ground.images.are_as_written:
        pytest.skip("the cluster that was given has the images elsewhere than the file says")
    place.kubectl("apply", "-f", str(FILE))
    running = place.wait_for_status("digits", lambda s: s.get("step", 0) > 0, "it trains", 240)
    assert (running["state"], running["workers"]["ready"]) == ("Running", 4)
    status = place.wait_for_status("digits", has_ended, "it ends", 600)
    (shown / "as-it-stands.txt").write_text(place.kubectl("get", "tj", "digits"))
    assert (status["state"], status["restarts"], status["workers"]["succeeded"]) == ("Succeeded", 0, 4)
    assert status["step"] == STEPS
    assert status["plan"]["version"] >= 1
    assert condition(status, "Succeeded")["status"] == "True"
    place.kubectl("delete", "-f", str(FILE))
    wait_until(lambda: place.leftovers() == [], "nothing is left of it", 60, interval=0.5)
