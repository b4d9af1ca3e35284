"""The report: from a comparison's files to one page that needs nothing else."""

import itertools
import json
import math
import re
from html.parser import HTMLParser

import pytest
from fake_runs import JOB, PHASES, decision, write_comparison, write_lines, write_run
from trimtab.cli.main import main
from trimtab.report import chart
from trimtab.report.comparison import read_comparison
from trimtab.report.decisions import trial_costs
from trimtab.report.figures import plan_keys
from trimtab.report.page import render_page

PLANS = {"adaptive": 0.08, "dense": 0.4, "0.011/all-gather": 0.1}
VOID = {"meta", "br", "wbr"}


class Page(HTMLParser):
    """What a page holds, and whether its elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def undefined_colors(text):
    return set(re.findall(r"var\(--([\w-]+)\)", text)) - set(re.findall(r"--([\w-]+):", text))


@pytest.fixture
def comparison(tmp_path):
    write_comparison(tmp_path, PLANS, end=30.0)
    return read_comparison(tmp_path)


def test_the_page_is_well_formed_and_loads_nothing(comparison):
    text = render_page(comparison)
    page = Page(text)
    assert page.open == []
    assert page.links == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert undefined_colors(text) == set()


def test_the_page_tells_every_plan_every_decision_and_how_to_repeat_it(comparison):
    page = Page(render_page(comparison))
    assert page.text.count("accuracy on held-out data") == 1
    for plan in PLANS:
        assert plan in page.text
    decisions = comparison.featured.decisions
    assert len(decisions) >= 2
    for each in decisions:
        assert each.reason in page.text
    assert " ".join(comparison.command) in page.text


def test_a_flag_carries_the_number_that_its_decision_has_in_the_file(tmp_path):
    write_run(tmp_path, "adaptive", 0.08, 30.0)
    lines = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    for line in lines:
        line["id"] += 41
        line["changed"] = line["id"] != 42  # one that kept the plan, between two that changed it
    (tmp_path / "decisions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = render_page(read_comparison(tmp_path))
    changed = [str(line["id"]) for line in lines if line["record"] == "decision" and line["changed"]]
    assert changed == ["41", "43"]
    assert re.findall(r'<circle [^>]* r="8"/><text [^>]*>(\d+)</text>', page) == changed
    assert re.findall(r'<span class="badge">(\d+)</span>', page) == [*changed, "42"]


def test_flags_that_are_near_each_other_stand_beside_each_other(tmp_path):
    write_run(tmp_path, "adaptive", 0.08, 30.0)
    told = [decision(n, n, 10.0 + 0.01 * n, "dense-ring", "0.011/all-gather", PHASES[0]) for n in range(9)]
    write_lines(tmp_path / "decisions.jsonl", [line for each in told for line in each])
    page = render_page(read_comparison(tmp_path))
    assert page.count('<g class="flag">') == 9
    at = [float(x) for x in re.findall(r'<circle cx="([\d.]+)" cy="0" r="8"/>', page)]
    assert 2 <= len(at) < 9, "nine have no room"
    assert min(b - a for a, b in itertools.pairwise(at)) >= 16


def test_a_step_that_took_much_longer_than_all_others_leaves_them_their_room(tmp_path):
    write_run(tmp_path, "dense", 0.08, 30.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert "longer steps cut off" not in render_page(read_comparison(tmp_path))
    lines[0] |= {"step_seconds": 9.0, "compute_seconds": 9.0}
    write_lines(tmp_path / "metrics.jsonl", lines)
    assert "longer steps cut off" in render_page(read_comparison(tmp_path))


def test_every_plan_of_the_ribbon_is_named_however_short_its_span(tmp_path):
    write_run(tmp_path, "adaptive", 0.08, 30.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "event" not in line and not line["trial"]]
    for name, step in (("0.002/all-gather", steps[20]), ("0.003/artopk-star-tree", steps[60])):
        step["plan"] = name
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_comparison(tmp_path).featured
    page = render_page(read_comparison(tmp_path))
    ribbon = page[page.index(">plan in force<") :]
    ribbon = ribbon[: ribbon.index("</svg>")]
    keys = plan_keys(run)
    assert {"0.002/all-gather", "0.003/artopk-star-tree"} < keys.keys()
    for name, key in keys.items():
        spans = [each for each in ribbon.split("<g>") if f"<title>{name}, " in each]
        assert spans
        if name != "trials":
            assert any(f">{said}</text>" in span for span in spans for said in (name, name.partition("/")[0], key))
            assert f"</span>{key} {name}<small>&nbsp;buffers: fixed, sent: wait-free</small></span>" in page


def test_names_cannot_break_the_page(tmp_path):
    write_run(tmp_path, "adaptive", 0.08, 5.0)
    job = json.loads(json.dumps(JOB))
    job["metadata"]["name"] = "<b>&"
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert "<b>&" in Page(render_page(read_comparison(tmp_path))).text


def test_report_rebuilds_summary_and_page_from_the_files(tmp_path, capsys):
    write_comparison(tmp_path, PLANS, end=40.0)
    assert main(["report", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary) == list(PLANS)
    assert set(summary["adaptive"]) >= {
        "accuracy",
        "seconds_to_target",
        "median_step_seconds",
        "bytes_sent",
        "plan_changes",
        "exploration_seconds",
        "wall_seconds",
        "valid",
    }
    assert summary["adaptive"]["plan_changes"] == sum(d.changed for d in read_comparison(tmp_path).featured.decisions)
    assert summary["adaptive"]["seconds_to_target"] < summary["0.011/all-gather"]["seconds_to_target"]
    assert summary["dense"]["seconds_to_target"] is None
    first = ((tmp_path / "summary.json").read_bytes(), (tmp_path / "report.html").read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    assert ((tmp_path / "summary.json").read_bytes(), (tmp_path / "report.html").read_bytes()) == first
    assert "not reached" in capsys.readouterr().out


def test_one_run_alone_can_be_reported(tmp_path):
    write_run(tmp_path, "dense", 0.2, 10.0)
    assert main(["report", str(tmp_path)]) == 0
    assert list(json.loads((tmp_path / "summary.json").read_text())) == ["dense"]


def test_several_runs_of_one_plan_are_set_side_by_side_by_their_names(tmp_path, capsys):
    for name, seconds in (("before", 0.2), ("after", 0.1)):
        write_run(tmp_path / name, "adaptive", seconds, 10.0)
    both = [str(tmp_path / name) for name in ("before", "after")]
    assert main(["report", *both, "--out", str(tmp_path / "both")]) == 0
    assert "before" in capsys.readouterr().out
    summary = json.loads((tmp_path / "both/summary.json").read_text())
    assert list(summary) == ["before", "after"]
    assert summary["before"]["median_step_seconds"] > 1.5 * summary["after"]["median_step_seconds"]
    text = (tmp_path / "both/report.html").read_text()
    page = Page(text)
    assert "2 runs side by side: 4 ranks on an emulated network" in page.text
    assert ", ".join(both) in page.text
    lines = re.findall(r'<polyline class="line" style="stroke: ([^;]*);[^>]*><title>(before|after)</title>', text)
    assert len(set(lines)) == len({color for color, _ in lines}) == 2
    assert not (tmp_path / "before/report.html").exists()


def test_several_runs_of_different_plans_are_named_by_these(tmp_path):
    for plan in ("adaptive", "dense"):
        write_run(tmp_path / f"of-{plan}", plan, 0.1, 10.0)
    both = [str(tmp_path / f"of-{plan}") for plan in ("adaptive", "dense")]
    assert main(["report", *both, "--out", str(tmp_path / "both")]) == 0
    assert list(json.loads((tmp_path / "both/summary.json").read_text())) == ["adaptive", "dense"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a", "b"], "--out: is missing; say where the report of several runs goes"),
        (["a", "a", "--out", "both"], "DIRECTORY: 'a': comes twice; name each run once"),
        (["a", "none", "--out", "both"], "none: no such directory"),
        (["a", "compared", "--out", "both"], "compared: is the directory of a comparison, not of a run; name a run"),
    ],
)
def test_what_cannot_be_set_side_by_side_is_one_line(tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a", "dense", 0.2, 5.0)
    write_comparison(tmp_path / "compared", {"adaptive": 0.1}, end=3.0)
    assert main(["report", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"trimtab: {complaint}")


def test_a_run_that_took_no_step_can_be_reported(tmp_path):
    write_run(tmp_path, "adaptive", 0.2, end=0.0)
    assert main(["report", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["adaptive"]["median_step_seconds"] is None


def test_a_run_that_decided_and_ended_before_its_first_step_can_be_reported(tmp_path):
    write_run(tmp_path, "adaptive", 0.2, end=0.0)
    decided, _ = decision(0, 0, 0.0, "dense-ring", "0.011/all-gather", PHASES[0])
    write_lines(tmp_path / "decisions.jsonl", [decided | {"solving_seconds": 0.06}])
    assert main(["report", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["adaptive"]["exploration_seconds"] > 0


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("adaptive/result.json", "{", "result.json: '{': is not JSON; the file is damaged, or"),
        ("adaptive/result.json", "[" * 9000, f"result.json: '{'[' * 40}': is not JSON"),
        ("adaptive/result.json", '{"plan": 3}', "result.json: plan: '3': must be text"),
        ("adaptive/result.json", '{"machine": 3}', "result.json: machine: '3': must be an object"),
        ("adaptive/job.json", "{}", "job.json: metadata: is missing"),
        ("adaptive/job.json", '{"metadata": {"name": "a"}, "spec": []}', "job.json: spec: '[]': must be an object"),
        (
            "adaptive/job.json",
            '{"metadata": {"name": "a"}, "spec": {"workers": "4"}}',
            "job.json: spec.workers: '4': must",
        ),
        ("adaptive/metrics.jsonl", "[]\n", "metrics.jsonl: '[]': is not a JSON object; the"),
        ("adaptive/metrics.jsonl", '{"step": 1, "step_seconds": 1}\n', "metrics.jsonl: time: is missing"),
        ("adaptive/metrics.jsonl", '{"step": 1, "step_seconds": "x"}\n', "metrics.jsonl: step_seconds: 'x': must be a"),
        ("adaptive/metrics.jsonl", '{"step": 1, "step_seconds": 1, "time": -3}\n', "metrics.jsonl: time: '-3': must"),
        ("adaptive/decisions.jsonl", '{"record": "measured"}\n', "decisions.jsonl: id: is missing"),
        ("adaptive/decisions.jsonl", '{"record": "decision", "id": 1}\n', "decisions.jsonl: step: is missing"),
        (
            "adaptive/decisions.jsonl",
            '{"record": "decision", "id": []}\n',
            "decisions.jsonl: id: '[]': must be a",
        ),
        ("adaptive/network.jsonl", '{"time": null}\n', "network.jsonl: time: 'None': must be a number"),
        (
            "adaptive/links.json",
            '{"links": [{"source": 0, "target": 1, "bandwidth_stale": 1}]}',
            "links.json: links[0].bandwidth_stale: '1': must be true or false",
        ),
        ("adaptive/links.json", '{"links": 3}', "links.json: links: '3': must be a list"),
        ("comparison.json", "?", "comparison.json: '?': is not JSON"),
        ("comparison.json", "[]", "comparison.json: '[]': is not a JSON object"),
        ("comparison.json", "{}", "comparison.json: command: is missing"),
        ("comparison.json", '{"target": null, "plans": 3}', "comparison.json: plans: '3': must be a list"),
        ("comparison.json", '{"target": 3}', "comparison.json: target: '3': must be an object or null"),
        ("comparison.json", '{"target": null, "plans": []}', "comparison.json: command: is missing"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_written(tmp_path, capsys, file, content, complaint):
    write_comparison(tmp_path, {"adaptive": 0.1}, end=3.0)
    (tmp_path / file).write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.removeprefix(f"trimtab: {tmp_path}/").removeprefix("adaptive/").startswith(complaint)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["adaptive/metrics.jsonl", "adaptive/job.json", "comparison.json"])
def test_a_file_without_an_end_is_refused_by_its_size(tmp_path, capsys, name):
    write_comparison(tmp_path, {"adaptive": 0.1}, end=3.0)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert main(["report", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/{name}: " in line
    assert "more than 64MB" in line


@pytest.mark.parametrize("name", ["adaptive/metrics.jsonl", "adaptive/job.json", "comparison.json"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys, name):
    write_comparison(tmp_path, {"adaptive": 0.1}, end=3.0)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"trimtab: {tmp_path}/{name}: cannot be read (Is a directory); check the path\n"


def test_what_diverged_can_be_reported_and_its_summary_is_json(tmp_path):
    write_run(tmp_path, "adaptive", 0.1, 5.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    step = [line for line in lines if "event" not in line][-1]
    odd = [{"loss": math.nan}, {"latency": math.inf}, {"gain": math.nan}, {"loss": None}, {"plan": "some/day"}]
    lines += [step | each for each in odd]
    lines.append({"event": "evaluation", "step": step["step"], "time": step["time"], "accuracy": math.nan})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(tmp_path)]) == 0
    assert not re.search(r"[\s\",>](nan|inf)", (tmp_path / "report.html").read_text())
    assert "some/day" in (tmp_path / "report.html").read_text()

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)


def test_measured_figures_are_written_without_the_noise_of_floats(tmp_path):
    write_run(tmp_path, "dense", 0.2, 10.0)
    assert main(["report", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())["dense"]
    for name in ("accuracy", "median_step_seconds", "wall_seconds"):
        assert len(f"{summary[name]!r}".replace(".", "").lstrip("0")) <= 6
    assert summary["bytes_sent"] > 10**6


def test_a_decision_shows_its_front_and_rings_the_plan_chosen(comparison):
    page = render_page(comparison)
    decisions = comparison.featured.decisions
    assert page.count("Pareto front of decision ") == len(decisions)
    chosen = [each for each in decisions if each.adopted.name in {point.plan for point in each.pareto}]
    assert len(chosen) >= 1
    assert page.count('<circle class="chosen"') == len(chosen)


def test_the_plan_chosen_is_among_those_shown_however_slow(tmp_path):
    write_run(tmp_path, "adaptive", 0.1, 5.0)
    decided, measured = decision(0, 3, 1.0, "dense-ring", "0.1/all-gather", PHASES[0])
    point = {"compress_seconds": 0.01, "sync_seconds": 0.02, "gain": 0.8}
    decided["pareto"] = [point | {"plan": f"0.0{n}/all-gather", "step_seconds": 0.01 * n} for n in range(1, 30)]
    decided["pareto"].append(point | {"plan": "0.1/all-gather", "step_seconds": 0.9})
    write_lines(tmp_path / "decisions.jsonl", [decided, measured])
    page = render_page(read_comparison(tmp_path))
    assert page.count('<td class="left">0.1/<wbr>all-gather</td>') == 1


def test_predictions_stand_beside_what_was_measured(comparison):
    text = Page(render_page(comparison)).text
    measured = [each for each in comparison.featured.decisions if each.measured_seconds]
    assert len(measured) >= 2
    assert text.count("90ms predicted, 94ms measured") == len(measured)


def test_trials_are_told_by_plan_with_their_share_of_the_run(comparison):
    run = comparison.featured
    costs = trial_costs(run)
    assert sum(each.num_steps for each in costs) == sum(step.trial for step in run.steps) > 0
    assert sum(each.seconds for each in costs) == pytest.approx(0.05 * sum(step.trial for step in run.steps))
    assert "What trials cost" in Page(render_page(comparison)).text


def test_what_an_earlier_version_wrote_has_no_links_and_what_never_tried_no_trials(tmp_path):
    write_run(tmp_path, "dense", 0.2, 10.0)
    (tmp_path / "links.json").unlink()
    text = Page(render_page(read_comparison(tmp_path))).text
    assert "The links" not in text
    assert "What trials cost" not in text


def test_the_page_of_ten_thousand_steps_is_small(tmp_path):
    write_run(tmp_path, "adaptive", 0.1, 1250.0)
    lines = [decision(n, n, float(n), "dense-ring", "0.011/all-gather", PHASES[1]) for n in range(300)]
    write_lines(tmp_path / "decisions.jsonl", [line for each in lines for line in each])
    comparison = read_comparison(tmp_path)
    assert len(comparison.featured.training_steps) >= 7000
    assert len(render_page(comparison).encode()) < 5_000_000


def test_a_traced_step_is_drawn_beside_its_prediction(tmp_path):
    write_comparison(tmp_path / "cmp", {"adaptive": 0.05})
    run = tmp_path / "cmp" / "adaptive"
    assert "One step, moment by moment" not in render_page(read_comparison(tmp_path / "cmp"))
    spans = [
        ("step", "STEP", 10.0, 10.2),
        ("computing", "FORWARD", 10.0, 10.05),
        ("computing", "BACKWARD", 10.05, 10.1),
        ("computing", "BACKWARD", 10.1, 10.15),
        ("buffer 0", "COMPRESS", 10.1, 10.11),
        ("compressing", "COMPRESS", 10.1, 10.11),
        ("link 0", "ALLGATHER", 10.11, 10.19),
    ]
    line = {"step": 5, "plan": "0.01/all-gather", "spans": []}
    line["spans"] = [{"row": r, "phase": p, "name": f"of {r}", "begin": b, "end": e} for r, p, b, e in spans]
    (run / "trace.jsonl").write_text(json.dumps(line) + "\n")
    page = render_page(read_comparison(tmp_path / "cmp"))
    assert "step 5, as it went: 200ms" in page
    assert undefined_colors(page) == set()
    assert "as it was predicted" not in page
    assert page.count("BACKWARD, 50ms to 150ms") == 1, "tensors that follow each other are one bar"
    predicted = {"step_seconds": 0.19, "spans": [{"row": "link 0", "begin": 0.11, "end": 0.19}]}
    profile = {"record": "profile", "plan": "0.01/all-gather", "predicted": predicted}
    with (run / "decisions.jsonl").open("a") as decisions:
        decisions.write(json.dumps(profile) + "\n")
    assert "as it was predicted: 190ms" in render_page(read_comparison(tmp_path / "cmp"))


def test_what_arrives_after_a_traced_step_has_its_place_in_the_figure(tmp_path):
    write_comparison(tmp_path / "cmp", {"adaptive": 0.05})
    whole = {"row": "step", "phase": "STEP", "name": "", "begin": 1.0, "end": 1.2}
    late = {"row": "link 0", "phase": "ALLGATHER", "name": "buffer 0", "begin": 1.15, "end": 1.5}
    line = {"step": 5, "plan": "0.01/all-gather/schedule=priority", "spans": [whole, late]}
    write_lines(tmp_path / "cmp" / "adaptive" / "trace.jsonl", [line])
    page = render_page(read_comparison(tmp_path / "cmp"))
    assert "step 5, as it went: 200ms" in page
    assert "ALLGATHER buffer 0, 150ms to 500ms" in page
    [step_end] = re.findall(r'class="rule" x1="([\d.]+)" x2="[\d.]+" y1="-4"', page)
    assert float(step_end) < chart.WIDTH / 2, "there is room after the step's end"


def test_of_local_steps_the_one_with_the_exchange_is_drawn_and_no_mean_beside_it(tmp_path):
    write_comparison(tmp_path / "cmp", {"adaptive": 0.05})
    run = tmp_path / "cmp" / "adaptive"
    plan = "0.01/all-gather/source=update:steps=2"
    whole = {"row": "step", "phase": "STEP", "name": "", "begin": 1.0, "end": 1.2}
    computing = {"row": "computing", "phase": "BACKWARD", "name": "w", "begin": 1.0, "end": 1.1}
    sending = {"row": "link 0", "phase": "ALLGATHER", "name": "buffer 0", "begin": 1.1, "end": 1.2}
    last = "0.01/all-gather/source=update:steps=64"  # of whose round no end was profiled
    lines = [(5, plan, [whole, computing, sending]), (6, plan, [whole, computing]), (9, last, [whole, computing])]
    write_lines(run / "trace.jsonl", [dict(zip(("step", "plan", "spans"), line, strict=True)) for line in lines])
    predicted = {"step_seconds": 0.15, "spans": [{"row": "computing", "begin": 0.0, "end": 0.15}]}
    with (run / "decisions.jsonl").open("a") as decisions:
        decisions.write(json.dumps({"record": "profile", "plan": plan, "predicted": predicted}) + "\n")
    page = render_page(read_comparison(tmp_path / "cmp"))
    assert "step 5, as it went: 200ms" in page
    assert "as it was predicted" not in page
