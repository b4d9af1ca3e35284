"""Of several processes that failed at once, the cause is told, not its victims."""

import pytest
from trimtab.launch.processes.children import Exit
from trimtab.launch.processes.logs import LogFiles
from trimtab.launch.processes.root_cause import await_root_cause, root_cause
from trimtab.launch.processes.supervisor import describe_failure
from trimtab.run_files.layout import RunDirectory

LOST = [
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "trimtab.transport.base.CommunicationError: rank 10 closed the connection",
]
#: As torch prints it in a process that has joined a group.
LOST_IN_A_GROUP = [f"[rank0]: {line}" for line in LOST]
OWN = ["Traceback (most recent call last):", "ValueError: no such CommunicationError: made up"]


@pytest.mark.parametrize(
    ("failed", "said", "name"),
    [
        ([("rank-10", 1), ("rank-2", 1)], {}, "rank-2"),
        ([("rank-0", 1), ("rank-10", -9)], {}, "rank-10"),
        ([("rank-0", 1), ("rank-10", 1)], {"rank-0": LOST, "rank-10": OWN}, "rank-10"),
        ([("rank-0", 1), ("rank-10", 1)], {"rank-0": LOST_IN_A_GROUP, "rank-10": OWN}, "rank-10"),
        ([("rank-0", -6), ("rank-10", 1)], {"rank-0": LOST}, "rank-10"),
        ([("rank-3", 1), ("rank-11", 1)], {"rank-3": LOST, "rank-11": LOST}, "rank-3"),
        ([("rank-0", 1), ("monitor-1", 1)], {}, "monitor-1"),
    ],
    ids=[
        "by number",
        "killed",
        "victim",
        "victim of a group",
        "victim that aborted",
        "victims alone",
        "monitor",
    ],
)
def test_of_several_that_failed_the_one_to_blame_is_named(failed, said, name):
    exits = [Exit(*each) for each in failed]
    assert root_cause(exits, lambda each: said.get(each, [])).name == name
    assert root_cause(exits[::-1], lambda each: said.get(each, [])).name == name


class FakeChildren:
    """Ranks that end one look after the other."""

    def __init__(self, *exits):
        self.exits = list(exits)

    @property
    def running(self):
        return [each.name for each in self.exits]

    def collect(self):
        return [self.exits.pop(0)] if self.exits else []


def has_failed(ended):
    return ended.code != 0


def test_those_that_only_lost_another_are_asked_for_whom():
    first, well, cause, late = Exit("rank-0", 1), Exit("rank-1", 0), Exit("rank-3", 1), Exit("rank-4", 1)
    children = FakeChildren(well, cause, late)
    said = {"rank-0": LOST_IN_A_GROUP, "rank-3": OWN, "rank-4": LOST}
    assert await_root_cause([first], said.get, children, lambda: None, has_failed) == [first, cause]
    assert children.running == ["rank-4"]
    assert await_root_cause([cause], said.get, children, lambda: None, has_failed) == [cause]


def test_where_all_lost_another_the_search_for_the_cause_ends(monkeypatch):
    ends, said = [Exit(f"rank-{rank}", 1) for rank in range(3)], {f"rank-{rank}": LOST for rank in range(3)}
    assert await_root_cause(ends[:1], said.get, FakeChildren(*ends[1:]), lambda: None, has_failed) == ends
    monkeypatch.setattr("trimtab.launch.processes.root_cause.ROOT_CAUSE_SECONDS", 0.01)
    hanging = FakeChildren(*ends)
    hanging.collect = list
    assert await_root_cause(ends[:1], said.get, hanging, lambda: None, has_failed) == ends[:1]


def test_what_is_told_comes_from_the_logs(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.logs.mkdir()
    directory.log("rank-1").write_text("\n".join(LOST) + "\n")
    directory.log("rank-10").write_text("\n".join(OWN) + "\n\n")
    told = describe_failure([Exit("rank-1", 1), Exit("rank-10", 3)], LogFiles(directory)).splitlines()
    log = directory.log("rank-10")
    assert told == [f"rank 10 ended with exit code 3; its log is {log}, and ends with", *(f"    {s}" for s in OWN)]
