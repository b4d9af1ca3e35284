"""Alerts that real faults bring about, by the test that causes them; `test_alerts.py` holds that these are all."""

#: By faults of a run on an emulated network, and of its operator's leader (`test_prometheus.py`).
OF_A_RUN = {
    "TrimtabStepsDropped", "TrimtabNetworkSlow", "TrimtabLinkDegraded", "TrimtabNetworkNotMeasured",
    "TrimtabTrainingStalled", "TrimtabOperatorHasNoLeader", "TrimtabCheckpointFailing",
}  # fmt: skip
#: By faults of the operator and of its API server (`test_operator_alerts.py`).
OF_THE_OPERATOR = {
    "TrimtabOperatorHasNoLeader", "TrimtabOperatorKeepsFailing",
    "TrimtabOperatorDoesNotReconcile", "TrimtabOperatorFallsBehind",
}  # fmt: skip
#: By runs whose plans do not suit the network (`test_plan_alerts.py`): the run, and the alert.
FLAPS = ("flapping", "TrimtabPlanFlaps")
DOES_NOT_PAY = ("static", "TrimtabCompressionDoesNotPay")
IS_SLOWER = ("static", "TrimtabStepsSlowerThanPredicted")
OF_PLANS = {alert for _, alert in (FLAPS, DOES_NOT_PAY, IS_SLOWER)}
