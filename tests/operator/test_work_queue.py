"""The queue's promises: each key once, one worker at a time, nothing forgotten, failures later and later."""

import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit.examples import examples
from trimtab_operator.kube.work_queue import FIRST_DELAY, KEYS_PER_NORMAL, LONGEST_DELAY, WorkQueue

KEYS = st.sampled_from(["a/a", "a/b", "b/a"])


class Queue(RuleBasedStateMachine):
    """Against a model: which keys are queued, and when they fall due."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.queue = WorkQueue(clock=lambda: self.now)
        self.ready = []
        self.held = {}
        self.due = {}

    @rule(key=KEYS, urgent=st.booleans())
    def add(self, key, urgent):
        self.queue.add(key, urgent)
        self.enqueue(key)

    @rule(key=KEYS, seconds=st.sampled_from([0.0, 1.0, 5.0]))
    def add_later(self, key, seconds):
        self.queue.add_later(key, seconds)
        self.due[key] = min(self.due.get(key, float("inf")), self.now + seconds)

    @rule(seconds=st.sampled_from([0.5, 1.0, 100.0]))
    def wait(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.due_keys())
    @rule()
    def get(self):
        key = self.queue.get()
        self.ready.remove(key)
        assert key not in self.held
        self.held[key] = False

    @precondition(lambda self: self.held)
    @rule(fails=st.booleans())
    def finish(self, fails):
        key = next(iter(self.held))
        self.due_keys()  # what fell due meanwhile belongs to the key while it is held
        if fails:
            delay = self.queue.failed(key)
            assert FIRST_DELAY <= delay <= LONGEST_DELAY
            self.due[key] = min(self.due.get(key, float("inf")), self.now + delay)
        else:
            self.queue.done(key)
        if self.held.pop(key):
            self.enqueue(key)

    @invariant()
    def as_many_wait_as_are_due(self):
        assert len(self.queue) == len(self.due_keys())

    def due_keys(self):
        for key, _ in sorted(
            ((key, due) for key, due in self.due.items() if due <= self.now), key=lambda each: each[1]
        ):
            del self.due[key]
            self.enqueue(key)
        return self.ready

    def enqueue(self, key):
        if key in self.held:
            self.held[key] = True
        elif key not in self.ready:
            self.ready.append(key)


class TestQueue(Queue.TestCase):
    settings = settings(max_examples=examples(50), stateful_step_count=30)


def test_keys_come_in_the_order_in_which_they_were_added():
    queue = WorkQueue()
    for key in ("b", "a", "b", "c"):
        queue.add(key)
    assert [queue.get() for _ in range(3)] == ["b", "a", "c"]


def test_one_job_of_a_namespace_does_not_wait_for_the_many_of_another():
    queue = WorkQueue()
    for number in range(1000):
        queue.add(f"crowd/{number}")
    queue.add("team/digits")
    queue.add("other/digits", urgent=True)
    queue.add("team/letters")
    came = [queue.get() for _ in range(6)]
    assert came == ["other/digits", "crowd/0", "team/digits", "crowd/1", "team/letters", "crowd/2"]
    assert len(queue) == 997


def test_urgent_keys_come_first_and_each_once():
    queue = WorkQueue()
    for key, urgent in (("a", False), ("b", False), ("c", True), ("b", True), ("c", False)):
        queue.add(key, urgent)
    assert [queue.get() for _ in range(3)] == ["c", "b", "a"]
    assert len(queue) == 0


def test_urgent_keys_do_not_keep_the_others_waiting_for_ever():
    queue = WorkQueue()
    for number in range(2 * KEYS_PER_NORMAL):
        queue.add(f"urgent-{number}", urgent=True)
    queue.add("a")
    queue.add("b")
    came = [queue.get() for _ in range(2 * KEYS_PER_NORMAL)]
    assert [came.index("a"), came.index("b")] == [KEYS_PER_NORMAL - 1, 2 * KEYS_PER_NORMAL - 1]


def test_failures_come_back_later_and_later_until_one_success():
    queue = WorkQueue(clock=lambda: 0.0)
    delays = []
    for _ in range(12):
        queue.add("a")
        assert queue.get() == "a"
        delays.append(queue.failed("a"))
    assert delays[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert delays[-1] == LONGEST_DELAY
    queue.add("a")
    queue.get()
    queue.done("a")
    queue.add("a")
    queue.get()
    assert queue.failed("a") == FIRST_DELAY


def test_many_workers_never_hold_the_same_key_and_miss_none():
    queue = WorkQueue()
    lock = threading.Lock()
    held, seen, clashes = set(), {}, []

    def work():
        while (key := queue.get()) is not None:
            with lock:
                if key in held:
                    clashes.append(key)
                held.add(key)
                seen[key] = seen.get(key, 0) + 1
            with lock:
                held.discard(key)
            queue.done(key)
            if all(seen.get(f"key-{number}") for number in range(200)):
                queue.close()

    workers = [threading.Thread(target=work) for _ in range(8)]
    for each in workers:
        each.start()
    for number in range(200):
        queue.add(f"key-{number}")
        queue.add_later(f"key-{number}", 0.001)
    for each in workers:
        each.join(timeout=30)
    assert not any(each.is_alive() for each in workers)
    assert clashes == []


def test_a_closed_queue_lets_its_workers_go():
    queue = WorkQueue()
    got = []
    worker = threading.Thread(target=lambda: got.append(queue.get()))
    worker.start()
    queue.close()
    worker.join(timeout=30)
    assert got == [None]


def test_nobody_waits_before_anybody_asks_for_keys_and_then_from_that_moment():
    """An operator that does not lead fills its queue for as long as it stands by."""
    now = 0.0
    queue = WorkQueue(clock=lambda: now)
    queue.add("a")
    queue.add("b")
    now = 3600.0
    assert queue.longest_wait == 0.0
    assert queue.get() == "a"
    assert queue.longest_wait == 0.0
    now = 3605.0
    assert queue.longest_wait == 5.0
