"""The report as Chromium shows it: nothing lies on anything else, in light and dark, without a network."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_runs import write_comparison
from kit.browser import look
from trimtab.report.comparison import read_comparison
from trimtab.report.page import render_page
from trimtab.run_files.layout import RunDirectory

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]

PLANS = {"adaptive": 0.08, "dense": 0.2, "0.01/all-gather": 0.1}
#: As long as plans of many axes are.
LONG = "0.028/all-gather/fusion=single/source=update:steps=16/wire=int8"
SECTIONS = {
    "Results",
    "Training",
    "The network, and what adaptive did about it",
    "Where a step's time goes",
    "Decisions",
    "Predicted and measured",
    "What trials cost",
    "The links",
    "How to repeat it",
}
LOOK = """
for (const each of document.querySelectorAll('details')) each.open = true;
const box = (each) => each.getBoundingClientRect();
const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
const said = (each) => each.textContent.trim().slice(0, 40);
const overlaps = [], outside = [], pale = [];
for (const svg of document.querySelectorAll('svg')) {
  const texts = [...svg.querySelectorAll('text')].filter((each) => said(each));
  texts.forEach((a, index) => {
    const own = box(a), all = box(svg);
    if (own.left < all.left - 1 || own.right > all.right + 1 || own.top < all.top - 1 || own.bottom > all.bottom + 1)
      outside.push(said(a));
    for (const b of texts.slice(index + 1)) if (meets(own, box(b))) overlaps.push([said(a), said(b)]);
  });
}
const blocks = [...document.querySelectorAll('main > *')];
blocks.slice(1).forEach((each, index) => { if (meets(box(blocks[index]), box(each))) overlaps.push([said(each)]); });
for (const each of document.querySelectorAll('.card, td, th, caption, figcaption, h2, h3, p'))
  if (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline') outside.push(said(each));
const canvas = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
const paint = canvas.getContext('2d', {willReadFrequently: true});
const part = (color) => {  // whatever the notation
  paint.fillStyle = color;
  paint.fillRect(0, 0, 1, 1);
  return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const linear = (c) => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
const light = (rgb) => { const [r, g, b] = rgb.map(linear); return .2126 * r + .7152 * g + .0722 * b; };
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
const card = part(getComputedStyle(document.querySelector('.card')).backgroundColor);
for (const each of document.querySelectorAll('.card td, .card th, .card p, .card summary, .card h3')) {
  const ground = getComputedStyle(each).backgroundColor;
  const behind = /, 0\\)$/.test(ground) || ground === 'transparent' ? card : part(ground);
  if (said(each) && contrast(part(getComputedStyle(each).color), behind) < 4.5) pale.push(said(each));
}
const unreachable = [...document.querySelectorAll('summary')].filter((each) => {
  each.focus(); return document.activeElement !== each; }).map(said);
return {
  overlaps, outside, pale, unreachable,
  sections: [...document.querySelectorAll('h2')].map((each) => each.textContent),
  loaded: performance.getEntriesByType('resource').map((each) => each.name),
  unnamed: [...document.querySelectorAll('svg:not([aria-label]):not([aria-hidden])')].length,
  pareto: document.querySelectorAll('svg circle.chosen').length,
  parts: new Set([...document.querySelectorAll('.bar i')].map((each) => getComputedStyle(each).backgroundColor)).size,
  ground: part(getComputedStyle(document.body).backgroundColor).reduce((a, b) => a + b),
};
"""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """A directory of one."""
    directory = tmp_path_factory.mktemp("comparison")
    write_comparison(directory, PLANS, end=30.0)
    adaptive = directory / "adaptive"
    lines = [json.loads(line) for line in (adaptive / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "step_seconds" in line:
            whole = line["step_seconds"]
            line |= {"compute_seconds": 0.8 * whole, "forward_seconds": 0.2 * whole, "backward_seconds": 0.4 * whole}
            line |= {"optimizer_seconds": 0.1 * whole}
    (adaptive / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    decisions = (adaptive / "decisions.jsonl").read_text()
    (adaptive / "decisions.jsonl").write_text(decisions.replace("0.011/all-gather", LONG))
    workers = range(8)
    links = [
        {"source": a, "target": b, "latency": 0.001 * (1 + a), "bandwidth": 125e6 / (1 + b)}
        for a in workers
        for b in workers
        if a != b
    ]
    RunDirectory(adaptive).tell_links(links)
    return directory


@pytest.fixture(scope="module")
def page(comparison):
    return render_page(read_comparison(comparison))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_overlaps_all_can_be_read_and_reached_and_nothing_is_loaded(page, tmp_path, dark):
    found, complaints = look(page, LOOK, tmp_path, dark=dark)
    assert complaints == []
    for trouble in ("overlaps", "outside", "pale", "unreachable", "loaded"):
        assert found[trouble] == [], trouble
    assert found["unnamed"] == 0, "each chart says what it is to those who do not see it"
    assert set(found["sections"]) == SECTIONS
    assert found["pareto"] > 0, "the plan chosen is marked on its front"
    assert found["parts"] == 5, "forward, backward, optimizer, other and waiting"
    assert (found["ground"] < 200) == dark


def test_the_documentations_pictures_are_taken_of_a_comparison_by_one_command(comparison, tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts/pictures", comparison, tmp_path], check=True, capture_output=True)
    taken = {each.name: each.read_bytes() for each in tmp_path.glob("*.png")}
    assert set(taken) == {each.name for each in (ROOT / "docs/pictures").glob("*.png")}
    sizes = {int.from_bytes(each[at : at + 4]) for each in taken.values() for at in (16, 20)}
    assert min(sizes) > 900
    assert max(sizes) < 4000
    for name, picture in taken.items():
        assert picture != taken[name.replace("-light", "-dark")] or "-dark" in name
