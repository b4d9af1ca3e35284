"""The text of a plan: one form, which names what is not the default and reads back to the same plan."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from trimtab.plan.fusion import cut, plan_of
from trimtab.plan.plan import FusionPlan, Plan
from trimtab_api.catalogue import AXES, collectives, parse_plan_text, sparsifiers
from trimtab_api.errors import UserError
from trimtab_api.trainingjob.rules import RULES

SIZES = (70, 1, 5000, 320, 64, 9)
#: Texts of values, of which every option takes some.
VALUES = (
    *("0", "1", "2", "7", "007", "1024", "1e-05", "0.5", ".5", "5.", "0.9", "1E-3", "1e30", "25MB", "4000", "7+100"),
    *("on", "off", "ahead", "behind", "inter", "both", "paper", "timeline", "mean", "sum", "bruck", "doubling"),
    *("dynamic", "coarse", "bounded", "scaled", "kept", "global", "local", "partial", "exponential", "pareto"),
    *("variance", "gradient", "selection"),
)


def takes(option, value):
    try:
        option.read(value)
    except ValueError:
        return False
    return True


@st.composite
def specs(draw, axis):
    """The text of a spec with any of its options, in any order."""
    row = draw(st.sampled_from(axis.rows()))
    told = [option for option in axis.options_of(row) if option.default is None or draw(st.booleans())]
    values = [draw(st.sampled_from([each for each in VALUES if takes(option, each)])) for option in told]
    options = draw(st.permutations([f"{option.name}={value}" for option, value in zip(told, values, strict=True)]))
    return ":".join([row.name, *options])


@st.composite
def texts(draw):
    """Of plans, axes in any order; not every plan can be followed."""
    collective = draw(specs(collectives))
    ratio = "" if collectives[collective].is_dense else f"{draw(st.floats(1e-9, 1, exclude_max=True))!r}/"
    axes = [
        axis for axis in AXES.values() if axis is not sparsifiers or not collectives[collective].has_builtin_sparsifier
    ]
    told = draw(st.permutations([f"/{axis.name}={draw(specs(axis))}" for axis in axes if draw(st.booleans())]))
    return ratio + collective + "".join(told)


@st.composite
def plans(draw):
    try:
        return cut(Plan.parse(draw(texts())), SIZES)
    except UserError:
        reject()


@given(plans())
def test_a_plan_is_read_back_from_its_text_and_from_its_json(plan):
    assert cut(Plan.parse(plan.name), SIZES) == plan
    assert Plan.from_json(plan.to_json()) == plan
    assert "," not in plan.name, "plans are listed with commas between them"


@given(texts())
def test_the_api_server_takes_the_text_of_every_plan(text):
    taken, refused = [rule.holds for rule in RULES if rule.at == "spec.communication.plan"]
    patterns = [each.replace(r"\\.", r"\.") for each in re.findall(r"self\.matches\('(.*?)'\)", taken)]
    assert any(re.search(pattern, text) for pattern in patterns)
    (pattern,) = re.findall(r"!self\.matches\('(.*?)'\)", refused)
    assert not re.search(pattern, text)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan(0.01, "all-gather"), "0.01/all-gather"),
        (Plan(1.0, "dense-ring"), "dense-ring"),
        (Plan(0.01, "all-gather", "topk"), "0.01/all-gather/sparsifier=topk"),
        (
            Plan(0.01, "all-gather", fusion=plan_of("fixed:bytes=4kB:selection=ahead", SIZES), source="update:steps=8"),
            "0.01/all-gather/fusion=fixed:bytes=4000:selection=ahead/source=update:steps=8",
        ),
        (Plan(1.0, "dense-tree", schedule="after-backward"), "dense-tree/schedule=after-backward"),
        (Plan(1.0, "dense-ring", fusion=FusionPlan((0, 7))), "dense-ring/fusion=cuts:at=7"),
    ],
)
def test_the_text_names_what_is_not_the_default(plan, text):
    assert plan.name == text


def test_what_a_text_does_not_name_is_as_the_job_says():
    fusion = FusionPlan(planner="single:selection=ahead")
    plan = Plan.parse("0.01/all-gather/schedule=after-backward", fusion, sparsifier="topk")
    assert (plan.sparsifier, plan.fusion, plan.schedule) == ("topk", fusion, "after-backward")
    assert Plan.parse("0.01/all-gather/sparsifier=mstopk", fusion, sparsifier="topk").sparsifier == "mstopk"
    arc_topk = Plan.parse("0.01/arc-topk", fusion, sparsifier="topk")
    assert arc_topk.sparsifier == "tracked", "it reads none"
    assert arc_topk.name == "0.01/arc-topk/fusion=single", "it selects in no tensor by itself"


def test_specs_of_one_meaning_are_one_plan():
    plan = Plan(0.01, "all-gather", source="update:steps=1", fusion=FusionPlan(planner="fixed:bytes=25MB"))
    assert plan == replace(plan, source="update", fusion=FusionPlan())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan: write dense, or RATIO/COLLECTIVE such as 0.01/all-gather"),
        ("0.01", "plan: '0.01': write dense, or RATIO/COLLECTIVE such as 0.01/all-gather"),
        ("2/all-gather", "ratio: '2': a compression ratio is in (0, 1]; 0.01 sends 1% of the gradient"),
        ("1/all-gather", "ratio 1 goes with dense-ring or dense-tree"),
        ("0.01/gather", "collective: 'gather': not known; choose from dense-ring, dense-tree, all-gather, artopk-"),
        ("0.01/all-gather:k=3", "collective: 'all-gather:k=3': takes no option k; it takes rounds, per_host"),
        ("0.01/all-gather/topk", "name axes as in sparsifier=topk; axes: sparsifier, fusion, schedule, source, wire"),
        (
            "0.01/arc-topk/sparsifier=tracked",
            "sparsifier: 'tracked': arc-topk selects by itself, and reads no sparsifier; leave the one or the other",
        ),
        ("0.01/all-gather/sparsifier=best", "sparsifier: 'best': not known; choose from tracked, topk, mstopk"),
        ("dense/source=update/source=gradient", "the axis source is named twice; leave out one"),
        ("dense/source=update:steps=0", "source: 'update:steps=0': steps=0: write a whole number, 1 to 1024"),
        (
            "dense/fusion=equal:buffers=5000000",
            "fusion: 'equal:buffers=5000000': buffers=5000000: write a whole number, 1 to 1000",
        ),
        ("dense/source=update:steps", "source: 'update:steps': write an option as key=value, and not 'steps'"),
        ("dense/fusion=equal", "fusion: 'equal': needs the option buffers: how many"),
        ("dense/fusion=cuts:at=7+3", "at=7+3: write element offsets that increase, with + between them"),
        ("dense/fusion=fixed:bytes=9:bytes=8", "the option bytes is given twice; leave out one"),
        ("dense/wire=int7", "wire: 'int7': not known; choose from float32"),
    ],
)
def test_a_wrong_text_is_refused_by_axis_value_and_remedy(text, message):
    with pytest.raises(UserError) as error:
        parse_plan_text(text)
    assert message in str(error.value)
