"""`trimtab network`: what it prints is a file for ``--network``."""

from __future__ import annotations

import pytest
from trimtab.cli.main import main
from trimtab_netmon.emulate import load_network, random_network


def test_what_is_printed_is_the_random_network_of_its_seed(tmp_path, capsys):
    assert main(["network", "--seed", "7", "--seconds", "45"]) == 0
    file = tmp_path / "random.yaml"
    file.write_text(capsys.readouterr().out)
    assert load_network(file) == random_network(7, 45)
    assert load_network(file).duration >= 45


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "trimtab: --seed: is missing; see `trimtab network --help`\n"),
        (["--seed", "x"], "trimtab: --seed: 'x': write a whole number from 0 to 2147483647\n"),
        (["--seed", "1", "--seconds", "0"], "trimtab: --seconds: '0': write a whole number from 1 to 86400\n"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments, message, capsys):
    assert main(["network", *arguments]) == 2
    assert capsys.readouterr() == ("", message)
