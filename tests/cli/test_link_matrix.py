"""The report's heat maps of links."""

from __future__ import annotations

import re

from fake_runs import write_run
from trimtab.report.comparison import read_comparison
from trimtab.report.page import render_page
from trimtab.run_files.layout import RunDirectory


def test_every_link_is_in_both_heat_maps(tmp_path):
    write_run(tmp_path, "adaptive", 0.2, 10.0)
    page = render_page(read_comparison(tmp_path))
    assert page.count('<table class="matrix">') == 2
    assert page.count("color-mix(in oklab, var(--slow) 70%") == 2 * 3, "three links are the slowest of each map"


def test_links_that_hardly_differ_look_alike(tmp_path):
    write_run(tmp_path, "dense", 0.2, 10.0)
    links = [{"source": a, "target": 1 - a, "latency": 0.001 + 0.00003 * a, "bandwidth": 4e6 + 4e6 * a} for a in (0, 1)]
    RunDirectory(tmp_path).tell_links(links)
    page = render_page(read_comparison(tmp_path))
    bandwidths, latencies = page.split('<table class="matrix">')[1:]
    strengths = [[int(each) for each in re.findall(r"var\(--slow\) (\d+)%", each)] for each in (bandwidths, latencies)]
    assert strengths == [[70, 8], [8, 11]]


def test_a_link_that_was_not_measured_is_told_from_none(tmp_path):
    write_run(tmp_path, "dense", 0.2, 10.0)
    links = [{"source": a, "target": 1 - a, "latency": 0.001, "bandwidth": 1e6 * a} for a in (0, 1)]
    RunDirectory(tmp_path).tell_links(links)
    page = render_page(read_comparison(tmp_path))
    bandwidths, latencies = page.split('<table class="matrix">')[1:]
    assert (bandwidths.count("<td>–</td>"), bandwidths.count("<td></td>")) == (1, 2)
    assert (latencies.count("<td>–</td>"), latencies.count("<td></td>")) == (0, 2)


def test_what_was_measured_before_the_network_changed_is_told_from_what_is_so(tmp_path):
    write_run(tmp_path, "dense", 0.2, 10.0)
    before, since = {"bandwidth": 125e6, "bandwidth_stale": True}, {"bandwidth": 12.5e6}
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    links = [
        {"source": a, "target": b, "latency": 0.001, "latency_stale": False} | (before if (a, b) == (0, 2) else since)
        for a, b in pairs
    ]
    RunDirectory(tmp_path).tell_links(links)
    page = render_page(read_comparison(tmp_path))
    bandwidths, latencies = page.split('<table class="matrix">')[1:]
    assert bandwidths.count('<td class="stale">(1Gbps)</td>') == 1
    assert (bandwidths.count("(--slow) 8%"), latencies.count("(--slow) 8%")) == (5, 6), "those alike are shaded alike"
    assert "stale" not in latencies


def test_links_of_which_all_is_stale_have_no_shade(tmp_path):
    write_run(tmp_path, "dense", 0.2, 10.0)
    links = [{"source": a, "target": 1 - a, "bandwidth": 1e6, "bandwidth_stale": True} for a in (0, 1)]
    RunDirectory(tmp_path).tell_links(links)
    (bandwidths,) = render_page(read_comparison(tmp_path)).split('<table class="matrix">')[1:]
    assert bandwidths.count('<td class="stale">') == 2
