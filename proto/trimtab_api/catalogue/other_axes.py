"""The other axes of a plan: sparsifiers, fusion planners, schedules, sources and wire formats."""

from __future__ import annotations

from trimtab_api.catalogue.axis import Axis
from trimtab_api.catalogue.costs import BYTES_PER_ELEMENT
from trimtab_api.catalogue.options import Option, one_of, positive, share, whole_number
from trimtab_api.catalogue.rows import Row, Schedule, Sparsifier, Wire
from trimtab_api.errors import UserError
from trimtab_api.units import format_size, parse_size

#: Bytes of a buffer where nothing is said, as in DistributedDataParallel.
DEFAULT_BUFFER_BYTES = 25_000_000
#: Each is a message or several: with more, a step is spent on them.
MOST_BUFFERS = 1000
#: Of a gradient, which then has four terabytes.
MOST_ELEMENTS = 10**12
MOST_BUFFER_BYTES = MOST_ELEMENTS * BYTES_PER_ELEMENT
#: Parts of a gradient that cross at the same time, each over connections of its own.
MOST_CREDIT = 8
#: Between two exchanges: more would be a job that hardly trains together.
MOST_LOCAL_STEPS = 1024
#: Values that share a scale where they cross in a few bits.
VALUES_PER_BLOCK = 64

# What selecting takes beside a tracked threshold, and the gain of a random draw: docs/measurements/sparsifiers.md.
sparsifiers: Axis[Sparsifier] = Axis(
    "sparsifier",
    Sparsifier(
        "tracked",
        "a threshold carried from step to step, corrected by what it achieved: within 10% of k",
        "trimtab.sparsify.tracked_threshold:TrackedThreshold",
    ),
    Sparsifier("topk", "exactly the k largest", "trimtab.sparsify.topk:TopK", passes=9.0),
    Sparsifier(
        "mstopk", "exactly k, by a threshold found by bisection (MSTopk)", "trimtab.sparsify.mstopk:MSTopK", passes=35.0
    ),
    Sparsifier("dgc", "0.8 to 1.3 k, by the threshold of a sample (DGC)", "trimtab.sparsify.dgc:DGC", passes=1.6),
    Sparsifier(
        "sidco",
        "k / 2 to 2 k, by a distribution fitted in stages (SIDCo)",
        "trimtab.sparsify.sidco:SIDCo",
        options=(
            Option("fit", one_of("exponential", "pareto"), "the distribution of the magnitudes", default="exponential"),
        ),
        passes=1.6,
    ),
    Sparsifier(
        "gaussian-k",
        "2/3 to 4/3 k, by the percent point of a normal distribution (Gaussian-k)",
        "trimtab.sparsify.gaussian_k:GaussianK",
        passes=4.5,
    ),
    Sparsifier(
        "redsync",
        "k / 2 to 2 k, by bisection between mean and maximum (RedSync)",
        "trimtab.sparsify.redsync:RedSync",
        passes=4.0,
    ),
    Sparsifier(
        "hard-threshold",
        "what reaches a constant, k / 4 to 4 k of it",
        "trimtab.sparsify.hard_threshold:HardThreshold",
        options=(Option("threshold", positive, "lambda, the smallest magnitude that is sent", default=0.01),),
        passes=5.0,
    ),
    Sparsifier(
        "random-k",
        "any k elements, the same on every rank",
        "trimtab.sparsify.random_k:RandomK",
        options=(Option("seed", whole_number(0), "of the draw", default=0),),
        passes=2.0,
        gain_odds=0.05,
    ),
)

_PARTITION = Option(
    "partition", whole_number(0, MOST_ELEMENTS), "most elements of a part; 0: what makes the step shortest", default=0
)
_CREDIT = Option(
    "credit",
    whole_number(0, MOST_CREDIT),
    "most parts that cross at the same time; 0: what makes the step shortest",
    default=0,
)

schedules: Axis[Schedule] = Axis(
    "schedule",
    Schedule("wait-free", "every bucket as soon as backward has filled it", "trimtab.schedule.wait_free:WaitFree"),
    Schedule(
        "after-backward",
        "every bucket once backward has ended",
        "trimtab.schedule.after_backward:AfterBackward",
        awaits_backward=True,
    ),
    Schedule(
        "priority",
        "in parts, what the next forward pass needs first before all that is complete (ByteScheduler, P3)",
        "trimtab.papers.bytescheduler.priority:plan_priority",
        options=(_PARTITION, _CREDIT),
        is_planned=True,
    ),
    Schedule(
        "us-byte",
        "in unequal parts, in the order that makes the step shortest (US-Byte)",
        "trimtab.papers.us_byte.us_byte:plan_us_byte",
        options=(_PARTITION,),
        is_planned=True,
    ),
    Schedule(
        "deft",
        "updates delayed and merged until exchanges hide behind computation (DeFT)",
        "trimtab.papers.deft.deft:plan_deft",
        options=(
            Option("partition", whole_number(1, MOST_ELEMENTS), "most elements of a bucket", default=6_500_000),
            Option(
                "preserver", one_of("on", "off"), "whether the expected loss bounds how much is merged", default="on"
            ),
            Option(
                "merged",
                one_of("auto", "mean", "sum"),
                "what an update takes of its iterations: the mean, as one larger batch would, or the sum;"
                " auto: the sum, and none is delayed before the loss was seen to fall as its gradients promise",
                default="auto",
            ),
        ),
        delays_updates=True,
        is_planned=True,
    ),
    Schedule(
        "overlap",
        "updates of a round of local steps while the next round computes, one round late (eager DiLoCo)",
        "trimtab.schedule.overlap:Overlap",
        delays_updates=True,
        overlaps_rounds=True,
    ),
)

MOMENTUM = Option("momentum", share, "of momentum correction, in place of the optimizer's (DGC)", default=0.0)
CLIP = Option("clip", positive, "L2 norm to which each rank clips its gradient, times sqrt(N)", default=0.0)
WARMUP = Option("warmup", whole_number(0), "steps in which the ratio falls from 0.316 to the plan's", default=0)
LOCAL_STEPS = Option("steps", whole_number(1, MOST_LOCAL_STEPS), "H, the steps between two exchanges", default=1)
OUTER_RATE = Option("outerRate", positive, "of the outer step, by the mean update of a round", default=1.0)
OUTER_MOMENTUM = Option("outerMomentum", share, "Nesterov's, of the outer step (DiLoCo)", default=0.0)

sources: Axis[Row] = Axis(
    "source",
    Row("gradient", "gradients, before the optimizer", options=(MOMENTUM, CLIP, WARMUP)),
    Row(
        "update",
        "what each rank's own optimizer made of its gradients",
        options=(LOCAL_STEPS, OUTER_RATE, OUTER_MOMENTUM),
    ),
)


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
    Row(
        "safusion",
        "SAFusion: buffers whose exchange lasts as long as the next takes to fill, selection ahead of fusion",
        "trimtab.fusion.safusion:safusion",
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
    Row("none", "no fusion: a buffer for each tensor (WFBP)", "trimtab.fusion.fixed:buffer_per_tensor"),
    Row(
        "mg-wfbp",
        "merged gradients: merge where the next gradient comes before what merging saves is spent (MG-WFBP)",
        "trimtab.fusion.mg_wfbp:merged_gradients",
    ),
    Row(
        "omgs",
        "merged gradients, with the time that compressing takes (OMGS-SGD)",
        "trimtab.fusion.omgs:merged_sparsification",
    ),
    Row(
        "cupcake",
        "the cuts that are best where compressing halts the backward pass (Cupcake)",
        "trimtab.fusion.cupcake:cupcake",
    ),
    Row(
        "autotuned",
        "buffers of the fixed size that is best in the model of a step (Horovod's autotuning)",
        "trimtab.fusion.autotuned:autotuned_size",
    ),
    Row(
        "optimal",
        "the best cuts between tensors in the model of a step, by dynamic programming",
        "trimtab.fusion.optimal:optimal",
    ),
    common=(_selection("behind"),),
)

_FORMATS = "trimtab.wire.value_formats"


def _of_blocks(bits: int, num_scales: int, error: float, passes: float, *, is_default: bool) -> Wire:
    return Wire(
        f"int{bits}",
        f"{bits} bits, scaled by each block of {VALUES_PER_BLOCK} values; the rank that rounds keeps what that takes",
        f"{_FORMATS}:Blocks",
        {"bits": bits},
        bytes_per_value=bits / 8 + 2 * num_scales / VALUES_PER_BLOCK,
        error=error,
        passes=passes,
        is_default=is_default,
    )


wires: Axis[Wire] = Axis(
    "wire",
    Wire("float32", "values as they are", f"{_FORMATS}:Float32", is_default=True),
    Wire(
        "bfloat16",
        "half the bytes; the rank that rounds keeps what that takes",
        f"{_FORMATS}:BFloat16",
        bytes_per_value=2,
        error=0.002,
        passes=1.0,
        rounds_dense=True,
    ),
    _of_blocks(8, num_scales=1, error=0.006, passes=1.5, is_default=True),
    _of_blocks(4, num_scales=1, error=0.11, passes=1.5, is_default=True),
    _of_blocks(2, num_scales=2, error=0.35, passes=4.0, is_default=False),
)
