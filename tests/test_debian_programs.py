"""No test calls a program that nothing installs."""

import subprocess

import pytest
from kit import debian_programs


def test_a_program_that_stands_in_no_list_cannot_be_called():
    with pytest.raises(RuntimeError, match="a test calls 'cowsay': add it, with Debian's package of it, to "):
        subprocess.run(["cowsay", "moo"], check=False)


@pytest.mark.parametrize(
    ("argv", "programs"),
    [
        (["ip", "link"], ["ip"]),
        (["/usr/bin/python3", "-c", ""], []),
        (
            ["nsenter", "--net=/run/netns/x", "--", "unshare", "--mount", "--", "tc", "qdisc"],
            ["nsenter", "unshare", "tc"],
        ),
        (["unshare", "--net", "true"], ["unshare"]),
    ],
)
def test_what_a_command_calls_by_name(argv, programs):
    assert debian_programs.called(argv) == programs


def test_what_is_missing_is_named_by_its_packages(monkeypatch, tmp_path):
    monkeypatch.setattr(debian_programs, "CNI_PLUGINS", (tmp_path,))
    monkeypatch.setattr(debian_programs.shutil, "which", lambda program: None if program.startswith("ip") else program)
    assert debian_programs.missing_packages("any") == ["iperf3", "iproute2"]
    assert debian_programs.missing_packages("node") == ["containernetworking-plugins", "iperf3", "iproute2", "iptables"]
    monkeypatch.setattr(debian_programs, "can_install", lambda: False)
    assert debian_programs.why_missing("any") == "install what brings iperf3, iproute2"
