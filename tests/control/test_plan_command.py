"""``trimtab plan``: the paper's winners, a choice, and errors that say what to do."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest
from paper_tables import PARAMETERS, TABLE_II, TABLE_VI
from trimtab.cli import plan_command
from trimtab.plan.plan import Plan
from trimtab_api.errors import UserError


def ask(*arguments):
    parser = argparse.ArgumentParser()
    plan_command.add_arguments(parser)
    return plan_command.run(parser.parse_args(arguments))


def answer(capsys, *arguments):
    assert ask(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("model", PARAMETERS)
@pytest.mark.parametrize("gigabits", [10, 5, 1])
def test_of_the_schemes_of_table_6_the_same_win(capsys, model, gigabits):
    result = answer(
        capsys, "--parameters", f"{PARAMETERS[model] / 1e6:g}M", "--workers", "8", "--latency", "1ms",
        "--bandwidth", f"{gigabits}Gbps", "--ratio", "0.1", "0.01", "0.001",
    )  # fmt: skip
    schemes = ("all-gather", "artopk-star-ring", "artopk-star-tree")
    seconds = {(row["ratio"], row["scheme"]): row["seconds"] for row in result["table"]}
    for name, at, ratio, *milliseconds in TABLE_VI:
        if (name, at) == (model, gigabits):
            assert (
                min(schemes, key=lambda scheme: seconds[ratio, scheme])
                == schemes[milliseconds.index(min(milliseconds))]
            )


@pytest.mark.parametrize(("parameters", "latency", "gigabits", "measured"), TABLE_II)
def test_the_ring_of_table_2(capsys, parameters, latency, gigabits, measured):
    result = answer(
        capsys, "--parameters", f"{parameters / 1e6:g}M", "--workers", "8", "--latency", f"{latency}ms",
        "--bandwidth", f"{gigabits}Gbps",
    )  # fmt: skip
    ring = next(row for row in result["table"] if row["scheme"] == "dense-ring")
    assert ring["seconds"][0] == pytest.approx(measured / 1000, rel=0.03)


def test_the_choice_is_a_plan_that_beats_dense(capsys):
    result = answer(capsys, "--model-size", "100MB", "--workers", "4", "--latency", "2ms", "--bandwidth", "200Mbps")
    assert result["choice"]["step_seconds"] < result["choice"]["dense_step_seconds"]
    assert "/" in result["choice"]["plan"]


def test_the_text_shows_choice_and_winners(capsys):
    ask("--parameters", "25.6M", "--workers", "8", "--latency", "5ms", "--bandwidth", "1Gbps")
    text = capsys.readouterr().out
    assert "choice: " in text
    assert text.count("<- fastest") == 3
    assert "of it 512ms computing (a guess from the size; give yours by --compute)" in text
    ask("--parameters", "25.6M", "--workers", "8", "--latency", "5ms", "--bandwidth", "1Gbps", "--compute", "90ms")
    assert "of it 90ms computing (as --compute says)" in capsys.readouterr().out


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_local_steps_are_chosen_where_the_job_permits_them_and_what_is_chosen_without_is_told(capsys, optimizer):
    slow = ("--parameters", "25.6M", "--workers", "8", "--latency", "5ms", "--bandwidth", "100Mbps")
    slow = (*slow, "--optimizer", optimizer)
    result = answer(capsys, *slow)
    chosen, without = result["choice"], result["choice_without_local_steps"]
    assert "source=update:steps=" in chosen["plan"]
    assert "steps=" not in without["plan"]
    to_target = [each["step_seconds"] * each["relative_steps"] for each in (chosen, without)]
    assert to_target[0] < to_target[1]
    assert answer(capsys, *slow, "--local-steps", "0")["choice"] == without
    assert Plan.parse(answer(capsys, *slow, "--local-steps", "4")["choice"]["plan"]).local_steps <= 4
    ask(*slow)
    assert f"without (--local-steps 0): {without['plan']}" in capsys.readouterr().out
    ask(*slow, "--local-steps", "0")
    assert "updates of several steps" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--workers", "1"),
        ("--latency", "5"),
        ("--bandwidth", "fast"),
        ("--bandwidth", "0Gbps"),
        ("--parameters", "many"),
        ("--parameters", "0"),
        ("--ratio", "2"),
        ("--compute", "-1s"),
        ("--local-steps", "2000"),
    ],
)
def test_a_mistake_names_its_flag_and_value(flag, value):
    flags = {"--parameters": "1M", "--workers": "4", "--latency": "1ms", "--bandwidth": "1Gbps", flag: value}
    with pytest.raises(UserError) as raised:
        ask(*(f"{name}={text}" for name, text in flags.items()))
    assert flag in str(raised.value)
    assert value in str(raised.value)


def test_neither_torch_nor_pymoo_is_imported_before_they_are_needed():
    code = "import sys, trimtab.cli.plan_command; print([m for m in ('torch', 'pymoo', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_control_loop_needs_no_torch():
    code = "import sys, trimtab.control.controller; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
