"""Plans that an engine cannot follow because of how this script steps its optimizers."""

from __future__ import annotations

from trimtab_api.catalogue import schedules
from trimtab_api.errors import UserError

from trimtab.plan.plan import Plan


def refuse_rounds(plan: Plan) -> None:
    """Raise `UserError` for a plan of local steps: alternating optimizers have no round in common."""
    if plan.local_steps:
        raise UserError(
            "makes rounds of several steps, and optimizers that take turns have no round in common; name a plan of"
            " source=gradient",
            field="plan.source",
            value=plan.source,
        )


def refuse_in_hooks(plan: Plan) -> None:
    """Raise `UserError` for local steps and for delayed updates: a DDP hook is not told when the optimizer steps."""
    if plan.local_steps:
        raise UserError(
            "makes rounds of local steps, and a hook of DDP's is not told of steps; call trimtab.attach(ddp_model,"
            " optimizer) in place of the hook, or name a plan of source=gradient",
            field="plan.source",
            value=plan.source,
        )
    if schedules[plan.schedule].delays_updates:
        refuse_waiting_gradients(plan)


def refuse_for_steps(plan: Plan, *, alternating_optimizers: bool, by_hand: bool) -> None:
    """Raise `UserError` for a plan that the script cannot follow, by the way in which it steps.

    A schedule that may delay updates does so only once steps were profiled; it is refused before training begins.

    Args:
        plan: The plan.
        alternating_optimizers: Optimizers alternate: neither local steps nor delayed updates are possible.
        by_hand: The script updates weights by itself: delayed updates are not possible.
    """
    if alternating_optimizers:
        refuse_rounds(plan)
    if (alternating_optimizers or by_hand) and schedules[plan.schedule].delays_updates:
        refuse_waiting_gradients(plan)


def refuse_waiting_gradients(plan: Plan) -> None:
    """Raise `UserError`: alternating optimizers, and steps by hand, need all gradients in each step."""
    raise UserError(
        "lets gradients wait for a later step, which neither optimizers that take turns nor a script that steps by hand"
        " can take; name one that sends all of them in each step",
        field="plan.schedule",
        value=plan.schedule,
    )
