"""What is written of a run while it trains."""

import json
import math

from trimtab.records.recorder import Recorder
from trimtab.records.run_directory import RunDirectory


def test_a_value_that_is_not_finite_is_null_wherever_it_stands_and_every_line_is_there_at_once(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.metric({"loss": math.nan, "scheme": {"ratio": math.inf, "sums": [1.0, -math.inf]}})
    recorder.metric({"loss": 0.5})
    lines = [json.loads(line) for line in RunDirectory(tmp_path).metrics.read_text().splitlines()]
    assert lines[0]["loss"] is None
    assert lines[0]["scheme"] == {"ratio": None, "sums": [1.0, None]}
    assert lines[1]["loss"] == 0.5
    recorder.close()
