"""The report's colours: told apart by those too who do not tell red, green or blue, in light and in dark.

The three sights are simulated as by Machado, Oliveira and Fernandes (2009), at full severity.
"""

import itertools
import math
import re
from importlib.resources import files

import pytest
from trimtab.report.colors import style, styles_in_turn, styles_of_plans

SIGHTS = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
#: Of OKLab; a just noticeable difference is some 0.02.
APART = 0.1
TOGETHER = {
    "plans": ("adaptive", "dense", "ag", "ring", "tree", "other-plan"),
    "parts of a step": ("forward", "backward", "optimizer", "other", "exposed"),
}


def themes():
    """Colours of the style sheet by name, of both themes."""
    light, dark = (files("trimtab.report") / "page.css").read_text().split("@media (prefers-color-scheme: dark)")[:2]
    return [dict(re.findall(r"--([\w-]+): (#\w{6})", text)) for text in (light, dark)]


def linear(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def oklab(rgb):
    to_cones = ((0.41222, 0.53633, 0.05145), (0.21190, 0.68070, 0.10740), (0.08830, 0.28172, 0.62998))
    to_lab = ((0.21045, 0.79362, -0.00407), (1.97800, -2.42859, 0.45059), (0.02590, 0.78277, -0.80868))
    return times(to_lab, [max(0.0, value) ** (1 / 3) for value in times(to_cones, rgb)])


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
@pytest.mark.parametrize("names", TOGETHER.values(), ids=TOGETHER)
@pytest.mark.parametrize("sight", SIGHTS)
def test_what_stands_together_is_told_apart(theme, names, sight):
    seen = {name: oklab([min(1, max(0, part)) for part in times(SIGHTS[sight], linear(theme[name]))]) for name in names}
    near = {(a, b): round(math.dist(seen[a], seen[b]), 3) for a, b in itertools.combinations(seen, 2)}
    assert {pair: distance for pair, distance in near.items() if distance < APART} == {}


def test_lines_are_told_apart_without_any_colour():
    plans = ("adaptive", "0.01/all-gather", "0.01/artopk-star-ring", "0.01/artopk-star-tree", "of/another-version")
    assert_told_apart([style(plan).line for plan in plans])


def test_plans_of_one_colour_have_dashes_of_their_own():
    plans = ("dense-ring", "dense-ring/schedule=priority", "dense-halving", "dense-ring/schedule=us-byte", "dense-tree")
    looks = styles_of_plans(plans)
    assert looks["dense-ring"] == style("dense-ring")
    assert {look.color for look in looks.values()} == {style("dense-ring").color}
    assert_told_apart([look.line for look in looks.values()])
    sparse = ("0.01/all-gather", "0.01/all-gather/schedule=priority")
    assert_told_apart([look.line for look in styles_of_plans(sparse).values()])


def test_runs_that_their_plans_do_not_tell_apart_look_different():
    looks = list(styles_in_turn([str(number) for number in range(6)]).values())
    assert len({look.color for look in looks}) == 6
    assert_told_apart([look.line for look in looks[1:]])


def assert_told_apart(lines):
    dashes = [re.search(r"dasharray: (.*)", line) for line in lines]
    assert len({found and found[1] for found in dashes}) == len(lines)
