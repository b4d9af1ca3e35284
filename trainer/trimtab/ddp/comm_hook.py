"""DistributedDataParallel, by ``ddp_model.register_comm_hook(None, trimtab.hook)``, or a `HookState` for None."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.amp.grad_scaler import GradScaler
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn import Parameter
from trimtab_api.errors import UserError

from trimtab.ddp.bucket_attachment import attach_buckets
from trimtab.ddp.bucket_session import BucketSession
from trimtab.session.ddp_wrapper import check_bucket


class HookState:
    """State of one model's communication hook: ``ddp_model.register_comm_hook(HookState(optimizer), trimtab.hook)``."""

    def __init__(
        self, optimizer: torch.optim.Optimizer | None = None, *, scaler: GradScaler | None = None, **options: Any
    ) -> None:
        """Describe the training to the hook, which joins its job at the end of the first backward pass.

        Args:
            optimizer: Only read: the cost of compression depends on its kind. None: the cost with Adam is assumed.
            scaler: The script's GradScaler, only read: residuals are kept without its scale.
            **options: ``job``, ``plan`` and ``run_directory``, as for `attach`.
        """
        self._options = {"optimizer": optimizer, "scaler": scaler, **options}
        self.session: BucketSession | None = None
        """The session, once the first backward pass has ended: ``report``, ``steps``, ``plan``, ``all_reduce``."""
        self._held: list[tuple[list[Parameter], list[Tensor]]] = []
        """Parameters and gradients of the first pass, by bucket: the last bucket completes the model."""
        self._promised: list[tuple[Future[Tensor], Tensor]] = []
        """Futures that DDP waits for in the present pass, by bucket, and the tensor in which DDP finds the mean."""

    def close(self) -> None:
        """Leave the job and write what is pending.

        Afterwards the hook is DDP's own all-reduce. Call it before another model trains by the hook.
        """
        if self.session is not None:
            self.session.close()

    def __reduce__(self) -> tuple[type["HookState"], tuple[()]]:
        """Reduce to a hook state that has exchanged nothing, for a copy or a file of the wrapper."""
        return HookState, ()

    def _exchange(self, bucket: GradBucket) -> Future[Tensor]:
        if self.session is not None and self.session.is_closed:
            return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]
        check_bucket(buffer := bucket.buffer())
        future: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
        self._promised.append((future, buffer))
        parameters: list[Parameter] = bucket.parameters()  # type: ignore[assignment]  # declared as tensors
        self._held.append((parameters, bucket.gradients()))
        if bucket.is_last() and self.session is None:
            self.session = attach_buckets([each for held, _ in self._held for each in held], **self._options)
        if self.session is not None:
            for held, gradients in self._held:
                self.session.take(held, gradients)
            self._held.clear()
        if bucket.is_last() and self.session is not None:
            self.session.give_back()
            for promised, mean in self._promised:
                promised.set_result(mean)
            self._promised.clear()
        return future


_OF_SCRIPT = HookState()  # of the model whose hook was registered with None


def hook(state: HookState | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Exchange the gradients in DDP's buckets by the plan in force; for ``ddp_model.register_comm_hook``.

    Every backward pass outside ``no_sync`` counts as one step.

    Args:
        state: The state of one model's hook. None: one state for the process, which has a single model then.
        bucket: A bucket of the model's gradients, float32, from DDP.

    Returns:
        A future of the bucket's mean over ranks. It is set when the backward pass has handed over its last bucket.

    Raises:
        UserError: As for `attach`, and for gradients that are sparse or not float32. Raised out of ``backward()``.
    """
    if not isinstance(state, HookState | None):
        raise UserError("is None or a trimtab.HookState", field="state", value=type(state).__name__)
    return (state or _OF_SCRIPT)._exchange(bucket)
