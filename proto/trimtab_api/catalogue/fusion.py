"""The fusion planners: how tensors become buffers."""

from __future__ import annotations

from trimtab_api.catalogue.costs import BYTES_PER_ELEMENT
from trimtab_api.catalogue.options import MOST_ELEMENTS, Option, one_of, whole_number
from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.rows import Row
from trimtab_api.errors import UserError
from trimtab_api.units import format_size, parse_size

#: Bytes of a buffer where nothing is said, as in DistributedDataParallel.
DEFAULT_BUFFER_BYTES = 25_000_000
#: Each is a message or several: with more, a step is spent on them.
MOST_BUFFERS = 1000
MOST_BUFFER_BYTES = MOST_ELEMENTS * BYTES_PER_ELEMENT


def _size(text: str) -> int:
    try:
        size = parse_size(text if text.endswith("B") else f"{text}B")
    except UserError as error:
        raise ValueError(error.remedy) from None
    if not 1 <= size <= MOST_BUFFER_BYTES:
        raise ValueError(
            f"write 1B to {format_size(MOST_BUFFER_BYTES)}, such as 25MB, or the planner single for one buffer"
        )
    return size


def _offsets(text: str) -> str:
    offsets = [whole_number(1, MOST_ELEMENTS)(part) for part in text.split("+")]
    if sorted(set(offsets)) != offsets:
        raise ValueError("write element offsets that increase, with + between them")
    return text


def _selection(default: str) -> Option:
    meaning = "select in each tensor, ahead of fusion, or behind it"
    return Option("selection", one_of("ahead", "behind"), meaning, default=default)


planners: Registry[Row] = Registry(
    "fusion",
    Row(
        "fixed",
        "buffers of a fixed size, of whole tensors (DistributedDataParallel, Horovod)",
        "trimtab.plan.fusion.planners:fixed_size",
        options=(Option("bytes", _size, "bytes of a buffer", default=DEFAULT_BUFFER_BYTES),),
    ),
    Row("single", "one buffer for all", "trimtab.plan.fusion.planners:single_buffer"),
    Row(
        "equal",
        "so many buffers of the same size, tensors split",
        "trimtab.plan.fusion.planners:equal_parts",
        options=(Option("buffers", whole_number(1, MOST_BUFFERS), "how many"),),
    ),
    Row(
        "cuts",
        "cut by hand",
        "trimtab.plan.fusion.planners:cut_at",
        options=(Option("at", _offsets, "element offsets, with + between them"),),
    ),
    Row(
        "safusion",
        "SAFusion: buffers whose exchange lasts as long as the next takes to fill, selection ahead of fusion",
        "trimtab.papers.safusion.safusion:safusion",
        options=(
            Option(
                "workers",
                one_of("inter", "both"),
                "inter: as many tensors in each buffer; both: each buffer sized by times, too",
                default="both",
            ),
            Option("buffers", whole_number(1, MOST_BUFFERS), "how many, where workers=inter", default=8),
            Option(
                "tail",
                one_of("timeline", "paper"),
                "paper: merge from where equation 3 holds; timeline: from there or one buffer later, as is faster",
                default="timeline",
            ),
            _selection("ahead"),
        ),
    ),
    Row("none", "no fusion: a buffer for each tensor (WFBP)", "trimtab.plan.fusion.planners:buffer_per_tensor"),
    Row(
        "mg-wfbp",
        "merged gradients: merge where the next gradient comes before what merging saves is spent (MG-WFBP)",
        "trimtab.plan.fusion.planners:merged_gradients",
    ),
    Row(
        "omgs",
        "merged gradients, with the time that compressing takes (OMGS-SGD)",
        "trimtab.plan.fusion.planners:merged_sparsification",
    ),
    Row(
        "cupcake",
        "the cuts that are best where compressing halts the backward pass (Cupcake)",
        "trimtab.plan.fusion.planners:cupcake",
    ),
    Row(
        "autotuned",
        "buffers of the fixed size that is best in the model of a step (Horovod's autotuning)",
        "trimtab.plan.fusion.planners:autotuned_size",
    ),
    Row(
        "optimal",
        "the best cuts between tensors in the model of a step, by dynamic programming",
        "trimtab.plan.fusion.planners:optimal",
    ),
    common=(_selection("behind"),),
)


def behind(planner: str) -> str:
    """Return the planner's spec with k chosen per bucket."""
    return planners.with_options(planner, selection="behind")


def asks_for_ahead(planner: str) -> bool:
    """Return whether a spec, as it was written, asks for k per tensor, rather than leave that to the default."""
    return "selection=ahead" in planner.split(":")[1:]
