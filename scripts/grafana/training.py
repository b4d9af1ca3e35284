"""Of one job: why is it slow, what did the controller choose and why, and was it right?"""

from __future__ import annotations

from grafana.building import FULL, JOB, STEP_PHASES, as_json, bands, dashboard, lines

RUN = "trimtab_trainer"
_PER_STEP = (
    f"sum by (phase) (rate({RUN}_step_seconds_total{{{JOB},phase=~'%s'}}[2m]))"
    f" / ignoring(phase) group_left sum(rate({RUN}_steps_total{{{JOB}}}[2m]))"
)
CHANGES = {
    "name": "Changes of the plan",
    "expr": f"sum by (trigger) (increase({RUN}_plan_changes_total{{{JOB}}}[$__rate_interval])) > 0",
    "titleFormat": "The plan changed",
    "textFormat": "after: {{trigger}}",
}
DECISIONS = {
    "name": "Decisions",
    "iconColor": "blue",
    "expr": f"sum by (trigger) (increase({RUN}_decisions_total{{{JOB}}}[$__rate_interval])) > 0",
    "titleFormat": "The controller decided",
    "textFormat": "after: {{trigger}}",
}


def training() -> str:
    """The dashboard: the network above, the plans beneath it and step times beneath those, on one time axis."""
    made = dashboard("training", "Trimtab: a training job", f"{RUN}_steps_total")
    return as_json(made, (*_story(), *_times(), *_training(), *_exchange(), *_checkpoints()), (CHANGES, DECISIONS))


def _story() -> list[object]:
    return [
        lines(
            "The network",
            "Bps",
            {
                "bandwidth": f"max(trimtab_network_bandwidth_bytes_per_second{{{JOB}}})",
                "latency": f"max(trimtab_network_latency_seconds{{{JOB}}})",
            },
            right={"latency": "s"},
            shows="Bandwidth and one-way latency of the slowest link, as the job's monitors last measured them.",
            bad="Where they change and no band beneath follows within seconds, see whether they are stale (Network).",
            width=FULL,
        ),
        bands(
            "The plan in force",
            f"max by (plan) ({RUN}_plan_info{{{JOB}}})",
            "{{plan}}",
            shows="Each plan as a band while it is in force; marks above show decisions and what they followed.",
            bad="Bands that alternate within minutes: raise communication.triggers, or read why in kubectl describe"
            " tj.",
        ),
        lines(
            "Where the time of a step goes",
            "s",
            {"{{phase}}": _PER_STEP % STEP_PHASES},
            shows="Mean of two minutes: exposed is waiting for the exchange, forward begins with drawing the batch.",
            bad="Much exposed time: the network is too slow for the plan (above), or one rank is late (below).",
            width=FULL,
            stacked=True,
        ),
    ]


def _times() -> list[object]:
    return [
        lines(
            "Step time, predicted and measured",
            "s",
            {
                "predicted": f"max({RUN}_predicted_step_seconds{{{JOB}}})",
                "expected of dense": f"max({RUN}_dense_step_seconds{{{JOB}}})",
                "measured after the last change": f"max({RUN}_measured_step_seconds{{{JOB}}})",
            },
            shows="What the last decision predicted, and the mean of the steps after the last change.",
            bad="Where the two part, the cost model is wrong about this network. The controller learns from it and"
            " decides again; if they stay apart, name the plan by communication.plan.",
        ),
        lines(
            "Beside the step",
            "s",
            {"{{phase}}": _PER_STEP % "compress|collective"},
            shows="What compressing and the exchange take of a step, beside backward; mean of two minutes.",
            bad="Compressing that takes longer than the exchange does not pay: allow cheaper sparsifiers or dense.",
        ),
    ]


def _training() -> list[object]:
    return [
        lines(
            "Loss, and what the script reports",
            "short",
            {
                "loss": f"max({RUN}_loss{{{JOB}}})",
                "{{metric}}": f"max by (metric) ({RUN}_evaluation{{{JOB}}})",
            },
            shows="Training loss, and evaluations by the script's own names.",
            bad="A loss that rises after a change of plan: raise communication.ratio's lower bound, or lower the speed"
            " weight.",
        ),
        lines(
            "Gain and compression ratio",
            "percentunit",
            {
                "gain": f"max({RUN}_gain_ratio{{{JOB}}})",
                "ratio asked": f"max({RUN}_compression_ratio{{{JOB}}})",
                "ratio achieved": f"max({RUN}_achieved_ratio{{{JOB}}})",
            },
            shows="Gain is the share of the error-fed gradient that gets through; ratio the share of elements sent.",
            bad="A gain below a tenth for long: training lags behind; weigh gain more by communication.speedWeight. An"
            " achieved ratio far from the asked one: the sparsifier misses; name another by communication.sparsifier.",
            top=1,
        ),
        lines(
            "Residual",
            "short",
            {"norm": f"max({RUN}_residual_norm{{{JOB}}})"},
            shows="Norm of what error feedback holds back on rank 0.",
            bad="Growing without end: what is held back never gets through; raise communication.ratio's lower bound.",
        ),
    ]


def _exchange() -> list[object]:
    return [
        lines(
            "Decisions",
            "short",
            {
                "{{trigger}}": f"sum by (trigger) (increase({RUN}_decisions_total{{{JOB}}}[5m]))",
                "guard rails: back to dense": f"sum(increase({RUN}_guard_activations_total{{{JOB}}}[5m]))",
            },
            shows="In five minutes, by what they followed, and how often a guard rail took the job back to dense.",
            bad="Any guard rail: values were not finite, the residual grew, or a plan was slower than dense; kubectl"
            " describe tj and the report of the run say which.",
        ),
        lines(
            "Bytes that rank 0 sends",
            "Bps",
            {
                "sent": f"sum(rate({RUN}_sent_bytes_total{{{JOB}}}[2m]))",
                "slowest link": f"max(trimtab_network_bandwidth_bytes_per_second{{{JOB}}})",
            },
            shows="Bytes a second, beside what the slowest link carries.",
            bad="Near the link's bandwidth all the time: the network limits the job; allow smaller ratios.",
        ),
        lines(
            "How late the last rank is",
            "s",
            {"late": f"max({RUN}_late_seconds{{{JOB}}})"},
            shows="After the middle one of the ranks.",
            bad="More than a tenth of a step, always by the same rank (trimtab_trainer_last_rank): its machine is slow,"
            " not the network. Move the pod.",
        ),
        lines(
            "Steps dropped, and in trials",
            "short",
            {
                "dropped": f"sum(rate({RUN}_dropped_steps_total{{{JOB}}}[2m]))",
                "in trials": f"sum(rate({RUN}_trial_steps_total{{{JOB}}}[2m]))",
            },
            shows="Steps a second.",
            bad="Dropped: values were not finite on some rank, whose log names the parameter; lower the learning"
            " rate or clip gradients.",
        ),
    ]


def _checkpoints() -> list[object]:
    return [
        lines(
            "The last checkpoint",
            "s",
            {
                "age": f"time() - max({RUN}_checkpoint_time_seconds{{{JOB}}})",
                "time to write": f"max({RUN}_checkpoint_write_seconds{{{JOB}}})",
                "size": f"max({RUN}_checkpoint_bytes{{{JOB}}})",
            },
            right={"size": "bytes"},
            shows="Age of the last whole checkpoint of spec.checkpoint, its size, and how long its write took.",
            bad="An age of several intervals: the store is too slow, or checkpoints fail (beside). Without data the"
            " job has no spec.checkpoint, and a restart begins anew.",
        ),
        lines(
            "Checkpoints written, and failed",
            "short",
            {
                "whole": f"sum(increase({RUN}_checkpoints_total{{{JOB}}}[5m]))",
                "failed": f"sum(increase({RUN}_failed_checkpoints_total{{{JOB}}}[5m]))",
                "pause": f"sum(rate({RUN}_checkpoint_pause_seconds_total{{{JOB}}}[5m]))",
            },
            right={"pause": "percentunit"},
            shows="In five minutes, and the share of the time for which training waits for copies.",
            bad="Any that failed: kubectl describe tj says why. A pause of more than a few percent: raise"
            " spec.checkpoint.interval.",
        ),
    ]
