"""What a status and the metrics say of a job's checkpoints, by the lines of its run."""

import json
import os
import time

import pytest
from prometheus_client import CollectorRegistry
from trimtab.status.metrics import RunMetrics
from trimtab.status.status_reader import StatusReader, is_news
from trimtab_api.trainingjob import load_training_job

FULL = "No space left on device"


class Told:
    def __init__(self, run):
        self.run, self.reader = run, StatusReader(run.directory, load_training_job(run.directory.job))
        self.registry = CollectorRegistry()
        self.registry.register(RunMetrics(run.directory))

    def began(self, seconds_ago):
        self.run.directory.started.touch()
        os.utime(self.run.directory.started, (began := time.time() - seconds_ago, began))

    def written(self, step, at=0.0, problem="", in_memory=False):
        line = {"event": "checkpoint", "step": step, "time": at, "pause_seconds": 0.25, "seconds": 2.5}
        with self.run.directory.metrics.open("a") as file:
            file.write(json.dumps(line | {"bytes": 1000, "problem": problem, "in_memory": in_memory}) + "\n")

    def metric(self, name):
        return self.registry.get_sample_value(f"trimtab_trainer_{name}")


@pytest.fixture
def told(run):
    return Told(run)


def test_before_the_first_checkpoint_none_is_told(told):
    status = told.reader.read()
    assert not status.HasField("checkpoint")
    assert status.checkpoint_problem == ""
    assert (told.metric("checkpoints_total"), told.metric("failed_checkpoints_total")) == (0, 0)
    assert told.metric("checkpoint_step") is None


def test_the_last_whole_checkpoint_is_told_with_its_age(told):
    told.began(100)
    told.written(4, at=10)
    told.written(8, at=70)
    checkpoint = told.reader.read().checkpoint
    assert (checkpoint.step, checkpoint.bytes, checkpoint.seconds) == (8, 1000, 2.5)
    assert 30 <= checkpoint.age_seconds < 90
    assert (told.metric("checkpoints_total"), told.metric("checkpoint_step")) == (2, 8)
    assert told.metric("checkpoint_pause_seconds_total") == 0.5
    assert -90 < told.metric("checkpoint_time_seconds") - time.time() <= -30


def test_a_checkpoint_is_of_now_where_the_clock_was_set_back(told):
    told.began(-1000)
    told.written(4, at=10)
    assert 0 <= told.reader.read().checkpoint.age_seconds < 60


def test_one_that_fails_is_told_until_the_next_is_whole_and_both_changes_are_news(told):
    told.written(4)
    good = told.reader.read()
    told.written(8, problem=FULL)
    bad = told.reader.read()
    assert bad.checkpoint_problem == f"the checkpoint of step 8 could not be written: {FULL}"
    assert bad.checkpoint.step == 4, "a restart goes on from it"
    assert (told.metric("failed_checkpoints_total"), told.metric("checkpoint_failing")) == (1, 1)
    told.written(12)
    mended = told.reader.read()
    assert (mended.checkpoint_problem, mended.checkpoint.step) == ("", 12)
    assert told.metric("checkpoint_failing") == 0
    assert is_news(good, bad)
    assert is_news(bad, mended)
    assert not is_news(good, mended)


def test_a_copy_in_memory_does_not_hide_that_the_store_fails(told):
    told.written(4, problem=FULL)
    told.written(5, in_memory=True)
    status = told.reader.read()
    assert status.checkpoint_problem == f"the checkpoint of step 4 could not be written: {FULL}"
    assert status.checkpoint.step == 5, "a restart goes on from it"
    told.written(6, problem="only one keeper answers", in_memory=True)
    told.written(8)
    problem = "the checkpoint of step 6 could not be written to memory: only one keeper answers"
    assert told.reader.read().checkpoint_problem == problem
