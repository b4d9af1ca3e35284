"""Fields of Kubernetes' own objects that a TrainingJob holds, by name.

On one machine, where no API server checks the template, `trimtab run` holds a file against these names. A test holds
them against Kubernetes' client.
"""

from __future__ import annotations

from trimtab_api.trainingjob.kubernetes_types import TYPES

#: The definition's schema leaves out what the API server alone sets, and the containers of debuggers.
METADATA = frozenset(TYPES["ObjectMeta"]) | {
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
}
POD_TEMPLATE = frozenset(TYPES["PodTemplateSpec"])
POD = frozenset(TYPES["PodSpec"]) | {"ephemeralContainers"}
CONTAINER = frozenset(TYPES["Container"])
VARIABLE = frozenset(TYPES["EnvVar"])
VOLUME = frozenset(TYPES["Volume"])
