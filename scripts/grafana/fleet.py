"""Of all jobs, and of the operator: which jobs stand still, which suffer from their network, is the operator well?"""

from __future__ import annotations

from grafana.building import STEP_PHASES, as_json, dashboard, lines, ranking

OPERATOR = "trimtab_operator"
NAMES = ("namespace", "trimtab_dev_job_name")
_OF_CHOSEN = '{namespace=~"$namespace",trimtab_dev_job_name=~"$job"}'
_BY_JOB = f"max by ({', '.join(NAMES)})"
_OF_PHASES = (
    f"sum by ({', '.join(NAMES)}) (rate(trimtab_trainer_step_seconds_total{_OF_CHOSEN[:-1]},phase=~'%s'}}[5m]))"
)
_EXPOSED, _WHOLE = _OF_PHASES % "exposed", _OF_PHASES % STEP_PHASES
#: Every operator process sees all jobs; the one that leads hears them.
_OWN = "and on (instance) trimtab_operator_leader"


def fleet() -> str:
    """The dashboard: jobs first, the operator beneath."""
    made = dashboard("fleet", "Trimtab: all jobs, and the operator", f"{OPERATOR}_job_info", several=True)
    return as_json(made, (*_states(), *_worst_jobs(), *_progress(), *_reconciling(), *_process()))


def _states() -> list[object]:
    return [
        lines(
            "Jobs by state",
            "short",
            {"{{state}}": f"max by (state) ({OPERATOR}_jobs)"},
            shows="TrainingJobs that there are.",
            bad="Pending or Starting that grows: pods find no node (kubectl describe tj). Failed: see each job's"
            " message.",
            stacked=True,
        ),
        lines(
            "Jobs that ended, and restarts",
            "short",
            {
                "{{state}}": f"sum by (state) (increase({OPERATOR}_jobs_finished_total[5m]))",
                "restart, counted: {{counted}}": f"sum by (counted) (increase({OPERATOR}_restarts_total[5m]))",
            },
            shows="In five minutes. Restarts of all ranks of a job; not counted: a node went away.",
            bad="Many counted restarts: jobs fail and begin again; their events say which and why.",
        ),
    ]


def _worst_jobs() -> list[object]:
    return [
        ranking(
            "Jobs without progress",
            "s",
            f"topk(10, {_BY_JOB} ({OPERATOR}_job_since_progress_seconds{_OF_CHOSEN}))",
            NAMES,
            shows="Time since training last got a step further.",
            bad="More than a few steps take: see the log of worker 0; the alert TrimtabTrainingStalled tells after"
            " 15 min.",
        ),
        ranking(
            "Jobs with the slowest networks",
            "Bps",
            f"bottomk(10, {_BY_JOB} (trimtab_network_bandwidth_bytes_per_second{_OF_CHOSEN}))",
            NAMES,
            shows="Bandwidth of each job's slowest link.",
            bad="Far below what the hosts' links carry: see the job's Network dashboard for which host it is.",
        ),
        ranking(
            "Jobs that wait most for their network",
            "percentunit",
            f"topk(10, {_EXPOSED} / {_WHOLE})",
            NAMES,
            shows="Share of each step that waits for the exchange.",
            bad="More than half: the job's Training dashboard shows whether the network or a late rank is the cause.",
        ),
    ]


def _progress() -> list[object]:
    return [
        ranking(
            "State and plan of each job",
            "short",
            f"max by ({', '.join(NAMES)}, state, plan) ({OPERATOR}_job_info{_OF_CHOSEN})",
            (*NAMES, "state", "plan"),
            shows="As the operator knows it.",
            bad="A plan that is dense everywhere: networks are fast, or communication.ratio allows no compression.",
        ),
        lines(
            "Step, loss and gain",
            "short",
            {
                "{{trimtab_dev_job_name}} steps a second": f"{_BY_JOB} (deriv({OPERATOR}_job_step{_OF_CHOSEN}[5m]))",
                "{{trimtab_dev_job_name}} loss": f"{_BY_JOB} ({OPERATOR}_job_loss{_OF_CHOSEN})",
                "{{trimtab_dev_job_name}} gain": f"{_BY_JOB} ({OPERATOR}_job_gain_ratio{_OF_CHOSEN})",
            },
            shows="Of the jobs chosen above.",
            bad="Steps that slow down while the loss is flat: see the job's Training dashboard.",
        ),
        lines(
            "Start latency",
            "s",
            {"{{trimtab_dev_job_name}}": f"{_BY_JOB} ({OPERATOR}_job_start_seconds{_OF_CHOSEN})"},
            shows="From when a job's pods were first asked for to when every worker was ready.",
            bad="Minutes: images are pulled anew, or nodes are full; kubectl get events of the pods tells.",
        ),
    ]


def _reconciling() -> list[object]:
    quantile = f"histogram_quantile(%s, sum by (le) (rate({OPERATOR}_reconcile_seconds_bucket[5m])))"
    return [
        lines(
            "Leaders",
            "short",
            {"leaders": f"sum({OPERATOR}_leader)", "jobs heard": f"max({OPERATOR}_streams)"},
            shows="Operator processes that lead, and the jobs whose rank 0 is heard.",
            bad="0 leaders: nobody manages jobs; see the operator's pods and its Lease. 2 for more than seconds: a"
            " defect.",
        ),
        lines(
            "Reconciliations",
            "cps",
            {"{{result}}": f"sum by (result) (rate({OPERATOR}_reconciles_total[5m]))"},
            shows="By how they ended.",
            bad="error: a defect, see the log. refused: the API server says no, or is away. conflict alone is"
            " harmless.",
        ),
        lines(
            "Duration of a reconciliation",
            "s",
            {"median": quantile % 0.5, "99 of 100": quantile % 0.99},
            shows="Half of them, and all but one of a hundred, take less.",
            bad="Seconds: the API server is slow; see its requests beneath.",
        ),
        lines(
            "Queue",
            "short",
            {"jobs": f"max({OPERATOR}_queue_length)", "wait of the first": f"max({OPERATOR}_queue_wait_seconds)"},
            right={"wait of the first": "s"},
            shows="Jobs that wait to be looked after, and how long the first of them has.",
            bad="A wait of more than seconds: raise operator.workers, unless the API server is slow.",
        ),
    ]


def _process() -> list[object]:
    return [
        lines(
            "Requests to the API server",
            "reqps",
            {"{{method}} {{code}}": f"sum by (method, code) (rate({OPERATOR}_api_requests_total[5m]))"},
            shows="By method and code.",
            bad="403: the operator lacks rights, install the chart's RBAC. 429: it is throttled. no answer: it is"
            " cut off.",
        ),
        lines(
            "Silence of watches",
            "s",
            {"{{resource}}": f"max by (resource) ({OPERATOR}_watch_silence_seconds)"},
            shows="Since each watch last made progress.",
            bad="More than a minute and a half: changes of jobs go unseen; the process is restarted after three.",
        ),
        lines(
            "Events that were never written",
            "cps",
            {"{{reason}}": f"sum by (reason) (rate({OPERATOR}_events_dropped_total[5m]))"},
            shows="By reason.",
            bad="refused: no right to create events there. too many: a job says more than anybody reads.",
        ),
        lines(
            "Memory and processor time",
            "bytes",
            {
                "memory {{instance}}": f"process_resident_memory_bytes {_OWN}",
                "processors {{instance}}": f"rate(process_cpu_seconds_total[5m]) {_OWN}",
            },
            shows="Of each operator process.",
            bad="Memory near its limit (512 MiB): raise operator.resources. A processor in full: raise"
            " operator.workers.",
        ),
    ]
