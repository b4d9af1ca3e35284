"""Of several processes that failed at once, the cause is told, not its victims."""

import pytest
from trimtab.launch.children import Exit
from trimtab.launch.culprit import culprit
from trimtab.launch.run import describe_failure
from trimtab.launch.run_directory import RunDirectory

LOST = [
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "trimtab.collectives.transport.CommunicationError: rank 10 closed the connection",
]
OWN = ["Traceback (most recent call last):", "ValueError: no such CommunicationError: made up"]


@pytest.mark.parametrize(
    ("failed", "said", "name"),
    [
        ([("rank-10", 1), ("rank-2", 1)], {}, "rank-2"),
        ([("rank 10", 1), ("rank 2", 1)], {}, "rank 2"),
        ([("rank-0", 1), ("rank-10", -9)], {}, "rank-10"),
        ([("rank-0", 1), ("rank-10", 1)], {"rank-0": LOST, "rank-10": OWN}, "rank-10"),
        ([("rank-0", -6), ("rank-10", 1)], {"rank-0": LOST}, "rank-10"),
        ([("rank-3", 1), ("rank-11", 1)], {"rank-3": LOST, "rank-11": LOST}, "rank-3"),
        ([("rank-0", 1), ("monitor-1", 1)], {}, "monitor-1"),
    ],
    ids=["by number", "on a cluster", "killed", "victim", "victim that aborted", "victims alone", "monitor"],
)
def test_of_several_that_failed_the_one_to_blame_is_named(failed, said, name):
    exits = [Exit(*each) for each in failed]
    assert culprit(exits, lambda each: said.get(each, [])).name == name
    assert culprit(exits[::-1], lambda each: said.get(each, [])).name == name


def test_what_is_told_comes_from_the_logs(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.logs.mkdir()
    directory.log("rank-1").write_text("\n".join(LOST) + "\n")
    directory.log("rank-10").write_text("\n".join(OWN) + "\n\n")
    told = describe_failure([Exit("rank-1", 1), Exit("rank-10", 3)], directory).splitlines()
    log = directory.log("rank-10")
    assert told == [f"rank 10 ended with exit code 3; its log is {log}, and ends with", *(f"    {s}" for s in OWN)]
