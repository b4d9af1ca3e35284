"""The other axes of a plan: sparsifiers, fusion planners, schedules, sources and wire formats."""

from __future__ import annotations

from trimtab_api.catalogue.axis import Axis
from trimtab_api.catalogue.rows import Row, Schedule
from trimtab_api.catalogue.spec import Option, one_of, whole_number
from trimtab_api.errors import UserError
from trimtab_api.units import parse_size

#: Bytes of a buffer where nothing is said, as in DistributedDataParallel.
DEFAULT_BUFFER_BYTES = 25_000_000
#: Each is a message or several: with more, a step is spent on them.
MOST_BUFFERS = 1000

sparsifiers: Axis[Row] = Axis(
    "sparsifier",
    Row(
        "tracked",
        "a threshold carried from step to step, corrected by what it achieved: within 10% of k",
        "trimtab.sparsify.tracked_threshold:TrackedThreshold",
    ),
    Row("topk", "exactly the k largest", "trimtab.sparsify.topk:TopK"),
    Row("mstopk", "exactly k, by a threshold found by bisection (MSTopk)", "trimtab.sparsify.mstopk:MSTopK"),
)

_PARTITION = Option("partition", whole_number(0), "most elements of a part; 0: what makes the step shortest", default=0)

schedules: Axis[Schedule] = Axis(
    "schedule",
    Schedule("wait-free", "every bucket as soon as backward has filled it", "trimtab.schedule.wait_free:WaitFree"),
    Schedule("after-backward", "every bucket once backward has ended", "trimtab.schedule.after_backward:AfterBackward"),
    Schedule(
        "priority",
        "in parts, what the next forward pass needs first before all that is complete (ByteScheduler, P3)",
        "trimtab.schedule.priority:plan_priority",
        options=(_PARTITION,),
        is_planned=True,
    ),
    Schedule(
        "us-byte",
        "in unequal parts, in the order that makes the step shortest (US-Byte)",
        "trimtab.schedule.us_byte:plan_us_byte",
        options=(_PARTITION,),
        is_planned=True,
    ),
    Schedule(
        "deft",
        "updates delayed and merged until exchanges hide behind computation (DeFT)",
        "trimtab.schedule.deft:plan_deft",
        options=(
            Option("partition", whole_number(1), "most elements of a bucket", default=6_500_000),
            Option(
                "preserver", one_of("on", "off"), "whether the expected loss bounds how much is merged", default="on"
            ),
        ),
        delays_updates=True,
        is_planned=True,
    ),
)

sources: Axis[Row] = Axis(
    "source",
    Row("gradient", "gradients, before the optimizer"),
    Row(
        "update",
        "what each rank's own optimizer made of its gradients",
        options=(Option("steps", whole_number(1), "H, the steps between two exchanges", default=1),),
    ),
)


def _size(text: str) -> int:
    try:
        return int(text) if text.isdecimal() else parse_size(text)
    except UserError as error:
        raise ValueError(error.remedy) from None


def _offsets(text: str) -> str:
    offsets = [whole_number(1)(part) for part in text.split("+")]
    if sorted(set(offsets)) != offsets:
        raise ValueError("write element offsets that increase, with + between them")
    return text


_SELECTION = Option(
    "selection", one_of("ahead", "behind"), "select in each tensor, ahead of fusion, or behind it", default="behind"
)

planners: Axis[Row] = Axis(
    "fusion",
    Row(
        "fixed",
        "buffers of a fixed size, of whole tensors (DistributedDataParallel, Horovod)",
        "trimtab.fusion.fixed:fixed_size",
        options=(Option("bytes", _size, "bytes of a buffer", default=DEFAULT_BUFFER_BYTES),),
    ),
    Row("single", "one buffer for all", "trimtab.fusion.fixed:single_buffer"),
    Row(
        "equal",
        "so many buffers of the same size, tensors split",
        "trimtab.fusion.equal:equal_parts",
        options=(Option("buffers", whole_number(1, MOST_BUFFERS), "how many"),),
    ),
    Row(
        "cuts",
        "cut by hand",
        "trimtab.fusion.by_hand:cut_at",
        options=(Option("at", _offsets, "element offsets, with + between them"),),
    ),
    common=(_SELECTION,),
)

wires: Axis[Row] = Axis("wire", Row("float32", "values as they are"))
