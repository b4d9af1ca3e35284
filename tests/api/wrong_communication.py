"""Every way in which a job's ``communication`` goes wrong, with the line that it gets."""

from trimtab_api.catalogue import SPARSE_COLLECTIVES, SPARSIFIERS

COMMUNICATION = ("spec", "communication")
SPARSE = ", ".join(SPARSE_COLLECTIVES)

#: As in `wrong_jobs.WRONG`.
WRONG_COMMUNICATION = [
    (
        (*COMMUNICATION, "policy"),
        "adaptive",
        "spec.communication.policy: 'adaptive': must be 'Adaptive' or 'Static'",
    ),
    (
        (*COMMUNICATION, "policy"),
        "Static",
        "spec.communication.plan: a Static policy needs a plan, such as 0.01/all-gather",
    ),
    (
        (*COMMUNICATION, "plan"),
        "0.01/all-gather",
        "spec.communication.plan: '0.01/all-gather': an Adaptive policy chooses its own; "
        "remove it or say policy: Static",
    ),
    (
        (*COMMUNICATION, "plan"),
        "1%",
        "spec.communication.plan: '1%': write dense, or RATIO/COLLECTIVE with a ratio in (0, 1), "
        "such as 0.01/all-gather",
    ),
    (
        (*COMMUNICATION, "plan"),
        "0.01/gather",
        f"spec.communication.plan: '0.01/gather': not a sparse collective; choose from {SPARSE}",
    ),
    (
        (*COMMUNICATION, "ratio", "min"),
        0.2,
        "spec.communication.ratio.min: '0.2': is more than max (0.1); lower it or raise max",
    ),
    ((*COMMUNICATION, "ratio", "min"), 0, "spec.communication.ratio.min: '0': must be more than 0"),
    ((*COMMUNICATION, "ratio", "max"), 1, "spec.communication.ratio.max: '1': must be less than 1"),
    (
        (*COMMUNICATION, "ratio", "min"),
        "0.001",
        "spec.communication.ratio.min: '0.001': must be a number; write 0.001",
    ),
    (
        (*COMMUNICATION, "ratio", "candidates"),
        [0.1, 0.5],
        "spec.communication.ratio.candidates[1]: '0.5': lies outside min..max (0.001..0.1); "
        "remove it or widen the bounds",
    ),
    (
        (*COMMUNICATION, "ratio", "candidates"),
        [0.1, 0.01, 0.1],
        "spec.communication.ratio.candidates[2]: '0.1': is there twice; remove one",
    ),
    (
        (*COMMUNICATION, "collectives"),
        ["all-gather", "all-gather"],
        "spec.communication.collectives[1]: 'all-gather': is there twice; remove one",
    ),
    (
        (*COMMUNICATION, "warmupSteps"),
        10**11,
        "spec.communication.warmupSteps: '100000000000': must be at most 1000000",
    ),
    (
        (*COMMUNICATION, "fusion", "bufferSize"),
        "0MB",
        "spec.communication.fusion.bufferSize: '0MB': "
        "holds nothing; write a size such as 25MB, or single for one buffer",
    ),
    (
        (*COMMUNICATION, "ratio", "candidates"),
        [],
        "spec.communication.ratio.candidates: '[]': must have at least 1 entries",
    ),
    (
        (*COMMUNICATION, "ratio", "candidates"),
        0.1,
        "spec.communication.ratio.candidates: '0.1': must be a list, such as [a, b]",
    ),
    (
        (*COMMUNICATION, "collectives"),
        ["dense-ring"],
        f"spec.communication.collectives[0]: 'dense-ring': not known; choose from {SPARSE}",
    ),
    (
        (*COMMUNICATION, "sparsifier"),
        "top-k",
        f"spec.communication.sparsifier: 'top-k': not known; choose from {', '.join(SPARSIFIERS)}",
    ),
    (
        (*COMMUNICATION, "sparsifierAlternatives"),
        ["dgc", "top-k"],
        f"spec.communication.sparsifierAlternatives[1]: 'top-k': not known; choose from {', '.join(SPARSIFIERS)}",
    ),
    (
        (*COMMUNICATION, "sparsifierAlternatives"),
        ["dgc", "topk", "dgc"],
        "spec.communication.sparsifierAlternatives[2]: 'dgc': is there twice; remove one",
    ),
    (
        COMMUNICATION,
        {"policy": "Static", "plan": "0.01/arc-topk/wire=int8/sparsifier=topk"},
        "spec.communication.plan: '0.01/arc-topk/wire=int8/sparsifier=topk': sparsifier: 'topk': arc-topk selects by"
        " itself, and reads no sparsifier; leave the one or the other out",
    ),
    (
        COMMUNICATION,
        {"policy": "Static", "plan": "0.01/arc-topk:per_host=2", "sparsifier": "topk"},
        "spec.communication.sparsifier: 'topk': arc-topk selects by itself, and reads no sparsifier; leave the one or"
        " the other out",
    ),
    (
        COMMUNICATION,
        {"collectives": ["all-gather", "arc-topk"], "sparsifier": "topk"},
        "spec.communication.sparsifier: 'topk': arc-topk selects by itself, and reads no sparsifier; leave the one or"
        " the other out",
    ),
    (
        COMMUNICATION,
        {"collectives": ["all-gather", "arc-topk"], "sparsifierAlternatives": ["topk"]},
        "spec.communication.sparsifierAlternatives: '[topk]': arc-topk selects by itself, and reads no sparsifier;"
        " leave the one or the other out",
    ),
    (
        (*COMMUNICATION, "fusion", "alternatives"),
        ["single", "halves"],
        "spec.communication.fusion.alternatives[1]: 'halves': not known; choose from fixed, single, equal, cuts, "
        "safusion, none, mg-wfbp, omgs, cupcake, autotuned, optimal",
    ),
    (
        (*COMMUNICATION, "fusion", "alternatives"),
        ["equal"],
        "spec.communication.fusion.alternatives[0]: 'equal': needs the option buffers: how many",
    ),
    (
        (*COMMUNICATION, "fusion", "alternatives"),
        ["single", "single:selection=behind"],
        "spec.communication.fusion.alternatives[1]: 'single': is there twice; remove one",
    ),
    (
        (*COMMUNICATION, "schedules"),
        ["at-once"],
        "spec.communication.schedules[0]: 'at-once': not known; choose from wait-free, after-backward,"
        " priority, us-byte, deft, overlap",
    ),
    (
        (*COMMUNICATION, "schedules"),
        [],
        "spec.communication.schedules: '[]': must have at least 1 entries",
    ),
    (
        (*COMMUNICATION, "schedules"),
        ["wait-free", "overlap"],
        "spec.communication.schedules[1]: 'overlap': is not chosen by an Adaptive policy, whose law of progress does"
        " not know what a round's delay costs; leave it out, or write a Static plan of source=update",
    ),
    (
        COMMUNICATION,
        {"schedules": ["wait-free", "deft:merged=sum"], "localSteps": {"max": 4}},
        "spec.communication.localSteps.max: '4': deft:merged=sum of schedules merges gradients of several steps, and"
        " local steps send none; write max: 0, or leave the schedule out",
    ),
    (
        (*COMMUNICATION, "localSteps"),
        {"max": 0, "outerMomentum": 0.9},
        "spec.communication.localSteps.max: '0': leaves no rounds that an outer step could follow; raise it, or remove"
        " outerRate and outerMomentum",
    ),
    (
        (*COMMUNICATION, "localSteps", "outerMomentum"),
        1.0,
        "spec.communication.localSteps.outerMomentum: '1': must be less than 1",
    ),
    (
        (*COMMUNICATION, "valueFormats"),
        ["float32", "int16"],
        "spec.communication.valueFormats[1]: 'int16': not known; choose from float32, bfloat16, int8, int4, int2",
    ),
    (
        (*COMMUNICATION, "valueFormats"),
        ["float32", "int2"],
        "spec.communication.valueFormats[1]: 'int2': artopk-star-ring sends float32 or bfloat16 or int8 or int4; leave"
        " the one or the other out",
    ),
    (
        (*COMMUNICATION, "fusion", "bufferSize"),
        25,
        "spec.communication.fusion.bufferSize: '25': write it with its unit, such as 25MB",
    ),
    (
        (*COMMUNICATION, "fusion", "bufferSize"),
        "25Mb",
        "spec.communication.fusion.bufferSize: '25Mb': "
        "write a size such as 25MB or 64MiB (units: B, kB, MB, GB, KiB, MiB, GiB)",
    ),
    (
        (*COMMUNICATION, "trials", "budget"),
        "10%",
        "spec.communication.trials.budget: '10%': must be a number",
    ),
    (
        (*COMMUNICATION, "trials", "iterations"),
        2,
        "spec.communication.trials.iterations: '2': must be at least 3",
    ),
    (
        (*COMMUNICATION, "speedWeight"),
        2,
        "spec.communication.speedWeight: '2': must be at most 1",
    ),
    (
        (*COMMUNICATION, "timeout"),
        "500ms",
        "spec.communication.timeout: '500ms': must be at least 1s and at most 24h",
    ),
    (
        (*COMMUNICATION, "timeout"),
        "25h",
        "spec.communication.timeout: '25h': must be at least 1s and at most 24h",
    ),
    (
        COMMUNICATION,
        {"collectives": ["all-gather", "arc-topk"], "fusion": {"selection": "ahead"}},
        "spec.communication.fusion.selection: 'ahead': arc-topk cannot select in each tensor; write selection=behind",
    ),
    (
        COMMUNICATION,
        {"policy": "Static", "plan": "0.01/exdyna", "fusion": {"selection": "ahead"}},
        "spec.communication.fusion.selection: 'ahead': exdyna cannot select in each tensor; write selection=behind",
    ),
    (
        COMMUNICATION,
        {"collectives": ["exdyna"], "fusion": {"alternatives": ["single", "equal:buffers=2:selection=ahead"]}},
        "spec.communication.fusion.alternatives[1]: 'equal:buffers=2:selection=ahead': exdyna cannot select in each"
        " tensor; write selection=behind",
    ),
    (
        (*COMMUNICATION, "collectives"),
        ["spardl:teams=auto", "spardl:residual=auto"],
        "spec.communication.collectives[1]: 'spardl:residual=auto': residual=auto: choose from global, local, partial",
    ),
    (
        (*COMMUNICATION, "collectives"),
        ["gtopk:residual=paper"],
        "spec.communication.collectives[0]: 'gtopk:residual=paper': residual=paper: loses gradient; only a Static plan"
        " may name it",
    ),
    (
        (*COMMUNICATION, "collectives"),
        ["spardl:teams=0"],
        "spec.communication.collectives[0]: 'spardl:teams=0': teams=0: write a whole number, 1 to 2147483647",
    ),
]
