"""Guaranteed pods: Kubernetes' class for pods whose containers' requests equal their limits.

A Guaranteed pod is evicted last, and its containers may get processors of their own. One sidecar without equal requests
and limits makes the whole pod Burstable.
"""

from __future__ import annotations

import re
from decimal import Decimal

from trimtab_operator.kube.resources import Object

#: The resources that count; Kubernetes looks at no other.
_COUNTED = ("cpu", "memory")
#: CPU limit of a monitor for which the installer has set none. Less would slow down a bandwidth test.
_MONITOR_CPU = "500m"
_QUANTITY = re.compile(r"([0-9.]+)([a-zA-Z]*)([0-9+-]*)")
_UNITS = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_UNITS |= {unit: Decimal(1000) ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"))}
_UNITS |= {unit: Decimal(1024) ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}


def is_guaranteed(pod: Object) -> bool:
    """Return whether every container of a pod's spec has CPU and memory limits, and requests that equal them."""
    containers = [*pod["containers"], *(pod.get("initContainers") or ())]
    return all(_is_guaranteed(container.get("resources") or {}) for container in containers)


def guaranteed(resources: Object) -> Object:
    """Return a monitor's resources with equal requests and limits: the limit if there is one, else the request."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    amounts = {**requests, "cpu": _MONITOR_CPU, **limits}
    return {"requests": amounts, "limits": dict(amounts)}


def _is_guaranteed(resources: Object) -> bool:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    return all(name in limits and _same(requests.get(name, limits[name]), limits[name]) for name in _COUNTED)


def _same(one: object, other: object) -> bool:
    return str(one) == str(other) or (_amount(one) is not None and _amount(one) == _amount(other))


def _amount(quantity: object) -> Decimal | None:
    """Return the amount of a quantity such as ``2``, ``500m``, ``8Gi`` or ``1e3``; None if it cannot be read."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        return None
    number, unit, exponent = match.groups()
    try:
        if unit in ("e", "E") and exponent:
            return Decimal(f"{number}e{exponent}")
        return Decimal(number) * _UNITS[unit] if not exponent else None
    except (ArithmeticError, KeyError):
        return None
