"""What profiled steps measured of computation and exchanges: tensor by tensor, module by module, bucket by bucket."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trimtab.plan import Plan


@dataclass(frozen=True)
class ModuleTimes:
    """One module that owns parameters."""

    name: str
    """As in ``model.named_modules()``."""
    start: int
    stop: int
    """Its own parameters are elements ``start .. stop-1`` of the flat gradient, in backward order."""
    forward_seconds: float
    backward_seconds: float
    """Of the module itself: what modules inside it take is theirs."""


@dataclass(frozen=True)
class BucketTimes:
    """One buffer's exchange."""

    compress_seconds: float
    """Selection, packing and unpacking."""
    wire_seconds: float
    """From its first message to its last; what it waited for other buckets, or for slower ranks, is not in it."""


@dataclass(frozen=True)
class Profile:
    """Medians over a few steps of rank 0, measured after synchronising the device.

    A planner of fusion or of a schedule must give the same plan on every rank: rank 0 plans, and the plan is sent.
    """

    step: int
    """The last of these steps."""
    num_steps: int
    plan: Plan
    """Under which all of them ran; `buckets` are those of its fusion plan."""
    tensor_backward_seconds: tuple[float, ...]
    """Of each tensor, in backward order: from when the gradient before it was complete until its own was."""
    modules: tuple[ModuleTimes, ...]
    """In forward order."""
    buckets: tuple[BucketTimes, ...]
    """In backward order."""
    loss: float
    """Mean over the steps."""
    squared_gradient_norm: float
    """Of the gradient's mean over ranks."""
    gradient_variance: float
    """Mean over ranks of the squared distance of a rank's gradient from that mean."""

    @property
    def forward_seconds(self) -> float:
        """Of a whole step; 0 where no module was profiled."""
        return sum(module.forward_seconds for module in self.modules)

    @property
    def backward_seconds(self) -> float:
        """Of a whole step."""
        return sum(self.tensor_backward_seconds)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for checkpoints and ``profile.json``."""
        return {**asdict(self), "plan": self.plan.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Profile:
        """Inverse of `to_json`."""
        return cls(
            **{
                **data,
                "plan": Plan.from_json(data["plan"]),
                "tensor_backward_seconds": tuple(data["tensor_backward_seconds"]),
                "modules": tuple(ModuleTimes(**module) for module in data["modules"]),
                "buckets": tuple(BucketTimes(**bucket) for bucket in data["buckets"]),
            }
        )
