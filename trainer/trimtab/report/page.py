"""The report: one self-contained HTML page, in light and dark, that loads nothing."""

from __future__ import annotations

import contextlib
import shlex
from html import escape
from importlib.resources import files

from trimtab_api.catalogue import parse_plan_text, planners, schedules
from trimtab_api.errors import UserError
from trimtab_api.input_files import read_text
from trimtab_api.units import format_duration, format_size

from trimtab.report import figures
from trimtab.report.colors import Style
from trimtab.report.comparison import Comparison
from trimtab.report.decisions import decisions_table, predictions_figure, trial_table
from trimtab.report.link_matrix import link_matrices
from trimtab.report.step_lanes import step_figure
from trimtab.report.summary import Summary
from trimtab.report.table import headings, judge, notes, rows
from trimtab.run_files.reader import Run


def render_page(comparison: Comparison) -> str:
    """Return the page as HTML text."""
    name = comparison.runs[0].job.metadata.name
    summaries = comparison.summaries
    sections = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="lead">{escape(_lead(comparison, summaries))}</p>',
        *(f'<p class="warning">{escape(note)}</p>' for note in notes(summaries)[1:]),
        _key_figures(summaries),
        section("Results", "", _table(comparison, summaries)),
        section(
            "Training",
            "Time starts when every rank is ready.",
            _legend(comparison) + figures.training_figure(comparison),
        ),
        section(
            f"The network, and what {comparison.featured.name} did about it",
            "Lines: what the emulator set. Dots: what the monitor measured and what steps took. "
            "Numbered flags: decisions that changed the plan, told below. "
            "Where a step's time goes: means of slices of time.",
            figures.network_figure(comparison)
            + _phase_legend(figures.told_phases(comparison.featured.training_steps))
            + _plan_legend(comparison.featured),
        ),
        section(
            "Where a step's time goes",
            "Mean of the training steps; trials left out. Forward begins with drawing the batch, ends with the loss. "
            "Compression and collectives run beside backward: what it hides of them is free, the rest is waiting.",
            _breakdown(comparison),
        ),
        section(
            "One step, moment by moment",
            "A profiled step of rank 0 under the last plan whose exchange was profiled; beneath it what the model made "
            "of such a step by then, if it has one. Dashed: where the step ends. All profiled steps: trimtab trace.",
            step_figure(comparison.featured.directory),
        ),
        section("Decisions", *decisions_table(comparison.featured)),
        section(
            "Predicted and measured",
            "A numbered dot for each decision whose plan was measured. Above the dashed line steps took longer than "
            "predicted.",
            predictions_figure(comparison.featured),
        ),
        section(
            "What trials cost",
            "Steps under a candidate plan that were undone again.",
            trial_table(comparison.featured),
        ),
        section(
            "The links",
            "As last measured, from the worker of the row to that of the column. The stronger the colour, the slower. "
            "In parentheses: measured before the network changed, or long ago; –: never.",
            link_matrices(comparison.featured),
        ),
        section("How to repeat it", "", _repeat(comparison)),
    ]
    return document(name, sections)


def document(name: str, sections: list[str]) -> str:
    """Return a whole page of these sections, with its style sheet in it."""
    style = files("trimtab.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)} · Trimtab</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
    )


def section(heading: str, hint: str, body: str) -> str:
    """Return one part of a page; empty where it has no body."""
    if not body:
        return ""
    said = f'<p class="hint">{escape(hint)}</p>' if hint else ""
    return f'<section><h2>{escape(heading)}</h2>{said}<div class="card">{body}</div></section>'


def _lead(comparison: Comparison, summaries: dict[str, Summary]) -> str:
    num_ranks = sorted({run.job.spec.num_ranks for run in comparison.runs})
    where = "an emulated network" if any(each.emulated for each in summaries.values()) else "loopback"
    if len(comparison.runs) == 1:
        what = "One run"
    elif comparison.command:
        what = f"The same training under {len(comparison.runs)} plans in turn"
    else:
        what = f"{len(comparison.runs)} runs side by side"
    return f"{what}: {' and '.join(map(str, num_ranks))} ranks on {where}."


def _key_figures(summaries: dict[str, Summary]) -> str:
    featured = summaries.get("adaptive")
    dense = summaries.get("dense")
    if featured is None:
        return ""
    cards = []
    if featured.seconds_to_target and dense and dense.seconds_to_target:
        ratio = dense.seconds_to_target / featured.seconds_to_target
        cards.append((f"{ratio:.1f}×", "sooner at the target than dense"))
    elif featured.seconds_to_target:
        cards.append((format_duration(featured.seconds_to_target), "to the target"))
    if featured.accuracy is not None:
        beside = "" if dense is None or dense.accuracy is None else f" (dense: {dense.accuracy:.2%})"
        cards.append((f"{featured.accuracy:.2%}", f"accuracy at the end{beside}"))
    if dense and featured.num_steps and dense.num_steps and featured.bytes_sent:
        each = featured.bytes_sent / featured.num_steps
        cards.append((f"{dense.bytes_sent / dense.num_steps / each:.0f}×", "fewer bytes sent a step than dense"))
    if featured.wall_seconds:
        share = featured.exploration_seconds / featured.wall_seconds
        cards.append((f"{share:.1%}", f"of its time spent in trials and solving; {featured.plan_changes} plan changes"))
    body = "".join(f'<div class="card"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in cards)
    return f'<div class="figures">{body}</div>'


def _table(comparison: Comparison, summaries: dict[str, Summary]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings(comparison.target))
    body = []
    for name, row in zip(summaries, rows(summaries, comparison.target), strict=True):
        cells = [f"<td>{_chip(comparison.styles[name])}{escape(row[0].text)}</td>"]
        for cell in row[1:]:
            beside = f"<small>{escape(cell.against_dense)}</small>" if cell.against_dense else ""
            cells.append(f"<td>{escape(cell.text)}{beside}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    said = "".join(f'<p class="hint">{escape(text)}</p>' for text in (judge(summaries), notes(summaries)[0]) if text)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{said}"


def _chip(style: Style) -> str:
    return f'<span class="chip" style="background: {style.color}"></span>'


def _sample(style: Style) -> str:
    """Draw a bit of a run's line, for the legend."""
    line = f'<line x1="0" x2="26" y1="4" y2="4" style="{style.line}"/>'
    return f'<svg class="sample" viewBox="0 0 26 8" aria-hidden="true">{line}</svg>'


def _legend(comparison: Comparison) -> str:
    names = "".join(f"<span>{_sample(style)}{escape(name)}</span>" for name, style in comparison.styles.items())
    return f'<div class="legend">{names}</div>'


def _plan_legend(run: Run) -> str:
    """Return the letters and colours of the plans that were in force."""
    names = "".join(
        f'<span><span class="chip" style="background: {figures.ribbon_color(name)}"></span>'
        f"{escape(f'{key} {name}'.strip())}{_in_buffers(name)}</span>"
        for name, key in figures.plan_keys(run).items()
    )
    return f'<div class="legend">{names}</div>' if names else ""


def _in_buffers(name: str) -> str:
    """Return a plan's fusion planner and schedule, which its name leaves out where they are the default."""
    if name == figures.TRIALS:
        return ""
    with contextlib.suppress(UserError):  # a run of DDP's own has no plan
        axes = parse_plan_text(name).axes
        fusion, schedule = (axes.get(axis.name, axis.default) for axis in (planners, schedules))
        return f"<small>&nbsp;buffers: {escape(fusion)}, sent: {escape(schedule)}</small>"
    return ""


def _phase_legend(phases: list[str]) -> str:
    """Return the colours of what a step is made of."""
    chips = "".join(
        f'<span><span class="chip" style="background: var(--{phase})"></span>{figures.PHASES[phase]}</span>'
        for phase in phases
    )
    return f'<div class="legend">{chips}</div>' if chips else ""


def _breakdown(comparison: Comparison) -> str:
    parts = {run.name: each for run in comparison.runs if (each := figures.step_parts(run))}
    longest = max((each.step for each in parts.values()), default=0.0)
    if not longest:
        return ""
    told = [phase for phase in figures.PHASES if any(phase in each.phases for each in parts.values())]
    lines = [
        f'<tr><td>{_chip(comparison.styles[name])}{escape(name)}</td><td class="wide"><div class="bar">'
        + "".join(
            f'<i style="width: {100 * seconds / longest:.2f}%; background: var(--{phase})"></i>'
            for phase, seconds in each.phases.items()
        )
        + "</div></td>"
        + "".join(
            f"<td>{format_duration(seconds)}</td>"
            for seconds in (each.step, *(each.phases.get(p, 0.0) for p in told), each.compress, each.collective)
        )
        + "</tr>"
        for name, each in parts.items()
    ]
    head = "<tr><th>plan</th><th></th>" + "".join(
        f"<th>{heading}</th>" for heading in ("step", *told, "compression", "collective")
    )
    return f'{_phase_legend(told)}<table class="bars"><thead>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def _repeat(comparison: Comparison) -> str:
    machine = dict(comparison.runs[0].result.machine)
    if "memory_bytes" in machine:
        machine["memory"] = format_size(machine.pop("memory_bytes"))
    spec = comparison.runs[0].job.spec
    machine |= {"seed": spec.seed, "workers": spec.workers}
    machine["directory"] = comparison.directory
    if not comparison.command and len(comparison.runs) > 1:
        machine["runs"] = ", ".join(str(run.directory.path) for run in comparison.runs)
    facts = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>" for name, value in machine.items())
    command = f"<pre>{escape(shlex.join(comparison.command))}</pre>" if comparison.command else ""
    network = comparison.runs[0].directory.network
    emulated = ""
    if network.exists():
        text = escape(read_text(network, "a network"))
        emulated = f"<details><summary>the network file</summary><pre>{text}</pre></details>"
    return f"{command}<dl>{facts}</dl>{emulated}"
