"""The rights that the operator runs with in tests: verb by verb what it needs, and nothing else."""

from trimtab_operator.operator import LEASE

RULES = [
    {"apiGroups": ["trimtab.dev"], "resources": ["trainingjobs"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": ["trimtab.dev"], "resources": ["trainingjobs/status"], "verbs": ["patch"]},
    # blockOwnerDeletion of a child's owner reference asks for this where the API server checks it.
    {"apiGroups": ["trimtab.dev"], "resources": ["trainingjobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "get", "patch"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["create", "get"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["create", "get", "patch", "delete"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["create", "get", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "list"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [LEASE],
        "verbs": ["get", "update"],
    },
]

USER = "trimtab-operator"

MANIFESTS = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": USER},
        "rules": RULES,
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    },
]
