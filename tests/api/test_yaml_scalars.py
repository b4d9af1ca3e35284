"""Unquoted YAML scalars: each means here what kubectl makes of it."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from trimtab_api.yaml import read_plain

sys.path.append(str(Path(__file__).parents[1] / "cluster"))
import binaries

#: What kubectl 1.32 and 1.34 made of each.
READ = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "on", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "NO", "false", "FALSE", "off", "Off"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    "yEs": "yEs",
    "nULL": "nULL",
    "1e-4": 0.0001,
    "1E4": 10000,
    "1.0": 1,
    "2.5": 2.5,
    ".5": 0.5,
    "+.5": 0.5,
    "1.": 1,
    "-0": 0,
    "008": 8,
    "010": 8,
    "0o10": 8,
    "-010": -8,
    "0x1F": 31,
    "0b11": 3,
    "-0b11": -3,
    "1_000": 1000,
    "0_8": 8,
    "1e20": 10**20,
    "1e21": 1e21,
    "1e999": "1e999",
    "9223372036854775807": 2**63 - 1,
    "18446744073709551615": 18446744073709552000,
    "0xffffffffffffffff": 18446744073709552000,
    ".0_5": 0.05,
    "-9223372036854775808": -(2**63),
    "12:30": "12:30",
    "2024-01-01": "2024-01-01",
    "2024-01-01x": "2024-01-01x",
    "2001-13-45": "2001-13-45",
    "=": "=",
    "._5": "._5",
    "1.2.3": "1.2.3",
    "0x": "0x",
    "-": "-",
    "1e": "1e",
}


@pytest.mark.parametrize(("text", "value"), READ.items())
def test_a_plain_scalar_is_read_as_kubectl_reads_it(text, value):
    read = read_plain(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.controlplane  # for kubectl; no API server is asked
def test_random_scalars_are_read_as_kubectl_reads_them(tmp_path):
    rng = random.Random(0)
    texts = {"".join(rng.choices("0123456789017eExXoObB+-._:", k=rng.randint(1, 6))) for _ in range(4000)}
    texts |= {word[:cut] + rng.choice(["", ".", "_", "0"]) for word in READ for cut in range(1, len(word) + 1)}
    texts |= {rng.choice("+-0") + str(2**bits + rng.randint(-2, 2)) for bits in (31, 53, 63, 64, 70) for _ in range(20)}
    plain = sorted(each for each in texts if re.fullmatch(r"[^-:=](.*[^:])?|-[^-].*[^:]", each))
    file = tmp_path / "scalars.yaml"
    head = "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: scalars}\nspec:\n"
    file.write_text(head + "".join(f"- {each}\n" for each in plain))
    kubectl = binaries.obtain(["kubectl"], on_path=True)["kubectl"]
    command = [str(kubectl), "label", "--local", "-f", str(file), "a=b", "-o", "json", "--dry-run=client"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    expected = dict(zip(plain, json.loads(printed)["spec"], strict=True))
    assert {each: read_plain(each) for each in plain} == expected
