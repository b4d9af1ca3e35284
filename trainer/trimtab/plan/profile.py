"""Measurements of profiled steps: computing tensor by tensor and module by module, exchanges bucket by bucket."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trimtab.plan.plan import Plan

#: Least fall of the loss over what SGD's steps promise by the gradient's norm. It is 0.2 to 0.6, with the noise in the
#: norm, if the learning rate leaves room. Below this limit the curvature or the noise decides.
_LEAST_KEPT = 0.15
#: A learning rate below this share of the one at which a delay did harm is another matter.
_MUCH_LOWER = 0.5


@dataclass(frozen=True)
class ModuleTimes:
    """One module that owns parameters."""

    name: str
    """Name in ``model.named_modules()``."""
    start: int
    stop: int
    """Parameters of its own are elements ``start .. stop-1`` of the flat gradient, in backward order."""
    forward_seconds: float
    """From the end of the module before it, or the begin of the forward pass, to its own end."""
    backward_seconds: float
    """Backward time of its own parameters' gradients."""


@dataclass(frozen=True)
class BucketTimes:
    """One buffer's exchange."""

    compress_seconds: float
    """Selection, packing and unpacking."""
    wire_seconds: float
    """Exchange time in the step in which that was shortest: then it waited least for slower ranks."""


@dataclass(frozen=True)
class Profile:
    """Medians over a few steps of rank 0, measured after synchronising the device.

    A planner of fusion or of a schedule must give the same plan on every rank: rank 0 plans, and the plan is sent.
    """

    step: int
    """The last of these steps."""
    num_steps: int
    plan: Plan
    """The plan of all these steps; `buckets` are those of its fusion plan."""
    lead_seconds: float
    """From the end of the step before to the begin of the backward pass whose gradients are sent.

    Drawing the batch, the forward pass with the loss, and passes that only accumulate.
    """
    tensor_backward_seconds: tuple[float, ...]
    """For each tensor, in backward order: from the completion of the gradient before it to its own.

    For the first: from the end of the forward pass. What the engine does with the gradient before it is left out.
    """
    modules: tuple[ModuleTimes, ...]
    """In forward order; empty if hooks inside the model would have it compiled anew."""
    buckets: tuple[BucketTimes, ...]
    """In backward order; empty if nothing was exchanged."""
    loss: float | None
    """Mean over the steps; None if the script does not report its loss."""
    squared_gradient_norm: float | None
    """Squared norm of the gradient's mean over ranks, as last known: only dense steps tell it.

    None before any was profiled. If updates merge iterations, of the mean over these as well.
    """
    gradient_variance: float | None
    """Mean over ranks of the squared distance of a rank's gradient from that mean, likewise."""
    learning_rate: float | None = None
    """Rate of the optimizer's first parameter group, over 1 - momentum if it has one; None without a rate."""
    loss_fall: float | None = None
    """Fall of the loss in an iteration since an earlier profile; None in the first, or without a loss."""
    delay_harmed_at: float | None = None
    """Learning rate at which the loss rose when updates came late, 0 if unknown; None: it did not rise."""

    @property
    def first_gradient_seconds(self) -> float:
        """From the forward pass's end to the first complete gradient."""
        return next((seconds for seconds in self.tensor_backward_seconds if seconds > 0), 0.0)

    @property
    def backward_seconds(self) -> float:
        """Backward time of a whole step."""
        return sum(self.tensor_backward_seconds)

    @property
    def kept_promise(self) -> float | None:
        """Fall of the loss over what SGD's updates promise: learning rate times squared gradient norm.

        As in a trust region: near 1 while the loss is as straight as the gradient says, near 0 or below if its
        curvature, or the noise, takes away what a step brings. None if one of the three is not known.
        """
        if self.loss_fall is None or not self.learning_rate or not self.squared_gradient_norm:
            return None
        return self.loss_fall * self.plan.merged_iterations / (self.learning_rate * self.squared_gradient_norm)

    def tolerates_staleness(self, *, is_sgd: bool) -> bool:
        """Return whether updates may come late, as far as is known.

        They may not if the loss rose when they did, at a learning rate that was not much higher; nor if steps of SGD
        certainly bring much less than their gradients promise: that is no time for larger ones.
        """
        harmed_at, rate = self.delay_harmed_at, self.learning_rate
        harms = harmed_at is not None and (rate is None or rate >= _MUCH_LOWER * harmed_at)
        falls_short = self.kept_promise is not None and self.kept_promise < _LEAST_KEPT
        return not harms and not (is_sgd and falls_short)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for checkpoints and ``profile.json``."""
        return {**asdict(self), "plan": self.plan.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Profile:
        """Return the profile that `to_json` wrote."""
        return cls(
            **{
                **data,
                "plan": Plan.from_json(data["plan"]),
                "tensor_backward_seconds": tuple(data["tensor_backward_seconds"]),
                "modules": tuple(ModuleTimes(**module) for module in data["modules"]),
                "buckets": tuple(BucketTimes(**bucket) for bucket in data["buckets"]),
            }
        )
