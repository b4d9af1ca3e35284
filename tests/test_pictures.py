"""The documentation's pictures: each has a light and a dark form, and the dashboards' say who drew them."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

import dashboard_pictures

PICTURES = Path(__file__).parents[1] / "docs/pictures"


@pytest.mark.parametrize("name", ["system", "step"])
def test_a_diagram_has_a_title_a_description_and_dark_colors(name):
    root = ElementTree.parse(PICTURES / f"{name}.svg").getroot()
    assert {part.tag.partition("}")[2] for part in root} >= {"title", "desc", "style"}
    assert "prefers-color-scheme: dark" in (PICTURES / f"{name}.svg").read_text("utf-8")


def test_each_dashboard_has_a_picture_in_light_and_in_dark():
    for dashboard in dashboard_pictures.DASHBOARDS.glob("*.json"):
        for theme in dashboard_pictures.THEMES:
            assert (PICTURES / f"dashboard-{dashboard.stem}-{theme}.png").exists()


def test_pictures_of_dashboards_say_that_grafana_did_not_draw_them():
    assert "not by Grafana" in dashboard_pictures.LABEL


def test_a_lines_legend_is_filled_in_from_its_labels():
    result = [{"metric": {"phase": "forward"}, "values": [[1.0, "2.5"]]}]
    series = dashboard_pictures.read_series([{"legend": "time of {{phase}}", "result": result}])
    assert series == [("time of forward", {"phase": "forward"}, [(1.0, 2.5)])]


def test_each_picture_is_shown_by_a_page():
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    shown = "".join(page.read_text("utf-8") for page in pages)
    hidden = [file.name for file in PICTURES.iterdir() if file.name.replace("-dark", "-light") not in shown]
    assert hidden == []
