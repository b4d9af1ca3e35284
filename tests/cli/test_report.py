"""The report: from a comparison's files to one page that needs nothing else."""

import json
from html.parser import HTMLParser

import pytest
from made_up_runs import JOB, write_comparison, write_run
from trimtab.cli.main import main
from trimtab.report.comparison import read_comparison
from trimtab.report.page import render_page
from trimtab_api.errors import UserError

PLANS = {"adaptive": 0.08, "dense": 0.4, "0.011/all-gather": 0.1}
VOID = {"meta"}


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


def test_the_page_tells_every_plan_every_decision_and_how_to_repeat_it(comparison):
    page = Page(render_page(comparison))
    assert page.text.count("accuracy on held-out data") == 1
    for plan in PLANS:
        assert plan in page.text
    decisions = comparison.featured.decisions
    assert len(decisions) >= 2
    for decision in decisions:
        assert decision.reason in page.text
    assert " ".join(comparison.command) in page.text


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


def test_a_run_that_took_no_step_can_be_reported(tmp_path):
    write_run(tmp_path, "adaptive", 0.2, end=0.0)
    assert main(["report", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["adaptive"]["median_step_seconds"] is None


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("adaptive/result.json", "{", "result.json: '{': is not JSON"),
        ("adaptive/metrics.jsonl", "[]\n", "metrics.jsonl: '[]\\n': is not a JSON object"),
        ("adaptive/metrics.jsonl", '{"step": 1}\n', "metrics.jsonl: time: is missing"),
        ("adaptive/decisions.jsonl", '{"record": "decision"}\n', "decisions.jsonl: id: is missing"),
        ("comparison.json", "?", "comparison.json: is not JSON"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, file, content, complaint):
    write_comparison(tmp_path, {"adaptive": 0.1}, end=3.0)
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError) as caught:
        read_comparison(tmp_path)
    assert str(caught.value).removeprefix(f"{tmp_path}/").removeprefix("adaptive/").startswith(complaint)
