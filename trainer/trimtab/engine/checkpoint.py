"""All that one rank's engine carries from step to step, as plain data and tensors, and what other ranks make of it.

The same number of ranks goes on bit for bit. Another number takes over what moves weights sooner or later: residuals,
gradients that a schedule has let wait, means that have arrived and were not applied, updates of a round that was not
ended. Each would have moved the weights by its sum over ranks / N; so where N ranks become M, what rank r held goes,
times M / N, to rank r mod M. What schemes have learned of a gradient is left behind, and learned anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace
from typing import Any

import torch
from torch import Tensor, nn
from trimtab_api import catalogue

from trimtab.engine.exchange.buckets import Buckets
from trimtab.engine.exchange.consensus import ExchangeSummary
from trimtab.engine.local_sgd.buffer_sync import persistent_buffers, put_back
from trimtab.engine.step_engine import StepEngine
from trimtab.plan.plan import Plan

State = dict[str, Any]


def step_state(engine: StepEngine) -> State:
    """Return what an engine carries from step to step under its plan, but for weights, optimizer and residuals."""
    round_state = {} if engine.local is None else engine.local.state_dict()
    return {**engine.exchanger.state_dict(), "under_way": round_state}


def load_step_state(engine: StepEngine, state: State) -> None:
    """Load what `step_state` returned, between steps and under the same plan."""
    engine.exchanger.load_state_dict(state)
    if engine.local is not None and state["under_way"]:
        engine.local.load_state_dict(state["under_way"])
        engine.exchanger.dispatcher.begin_round()


@torch.no_grad()
def carried(engine: StepEngine) -> State:
    """Return what a settled engine carries between two steps; tensors may be the engine's own."""
    flat_buffers, exchanger = engine.flat_buffers, engine.exchanger
    held = step_state(engine)
    held["summary"] = astuple(held["summary"])
    return {
        "tensors": flat_buffers.tensors,
        "plan": engine.plan.to_json(),
        "step": engine.step_tag.step,
        "residual": flat_buffers.residual,
        "set_aside": dict(flat_buffers.set_aside),
        "exchanger": held,
        "participation": exchanger.participation.state_dict(),
        "round": _round_of(engine),
    }


@torch.no_grad()
def resume(engine: StepEngine, state: State) -> None:
    """Restore the engine of which ``state`` was `carried`, on the same rank of as many ranks."""
    engine.plans.resume(_fitting(Plan.from_json(state["plan"]), engine), state["step"])
    flat_buffers, held = engine.flat_buffers, dict(state["exchanger"])
    flat_buffers.residual.copy_(state["residual"])
    flat_buffers.load_set_aside(state["set_aside"])
    held["summary"] = ExchangeSummary(*held["summary"])
    load_step_state(engine, _to_device(held, flat_buffers.grad.device))
    engine.exchanger.participation.load_state_dict(state["participation"])
    if engine.local is not None:
        engine.local.resume(state["round"]["anchor"], state["round"]["num_taken"])
        for parameter, kept in zip(flat_buffers.parameters, state["round"]["weights"], strict=True):
            parameter.copy_(kept)
        for optimizer, kept in zip(engine.optimizers, state["round"]["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        _put_buffers(engine.model, state["round"]["buffers"])
        if state["round"]["scale"]:
            engine.scale.load_state_dict(state["round"]["scale"])


@torch.no_grad()
def take_over(engine: StepEngine, states: Mapping[int, State], num_before: int) -> None:
    """Go on from the ``states`` that ``num_before`` ranks left; this rank needs those of `ranks_needed`."""
    rank, size = engine.group.rank, engine.group.size
    first = states[rank % num_before]
    engine.plans.resume(_fitting(Plan.from_json(first["plan"]), engine), first["step"])
    flat_buffers = engine.flat_buffers
    mine = [states[each] for each in range(rank, num_before, size)]
    total = flat_buffers.residual.zero_()
    for state in mine:
        total += state["residual"].to(total.device)
        if state["round"] is not None:
            own = torch.empty_like(state["round"]["anchor"])
            for view, weights in zip(flat_buffers.views_of(own), state["round"]["weights"], strict=True):
                view.copy_(weights)
            total += (state["round"]["anchor"] - own).to(total.device)
        if engine.exchanger.schemes.velocity is not None:
            engine.exchanger.schemes.velocity.add(state["exchanger"]["schemes"]["velocity"], size / num_before)
    if engine.exchanger.schemes.outer is not None:
        engine.exchanger.schemes.outer.load(first["exchanger"]["schemes"]["outer"])
    total *= size / num_before
    old = Buckets(flat_buffers, flat_buffers.buffers(engine.plan.fusion))
    old.load_state_dict(_to_device(_shared_out(first, mine, size / num_before), flat_buffers.grad.device))
    engine.exchanger.buckets.take_over(old)
    for index in {index for state in mine for index in state["set_aside"]}:
        parts = [state["set_aside"][index] for state in mine if index in state["set_aside"]]
        flat_buffers.set_aside[index] = (size / num_before) * torch.stack(parts).sum(0).to(total.device)
    if engine.local is not None:
        for parameter, anchor in zip(
            flat_buffers.parameters, flat_buffers.views_of(first["round"]["anchor"]), strict=True
        ):
            parameter.copy_(anchor)
        engine.local.set_anchor()
        for optimizer, kept in zip(engine.optimizers, first["round"]["optimizers"], strict=True):
            optimizer.load_state_dict(kept)


def _fitting(plan: Plan, engine: StepEngine) -> Plan:
    """Return the plan as these ranks can follow it.

    If the collective does not run on these ranks or hosts with its options, it loses the options. What the timetable
    sends over a link that these ranks do not have crosses the first.
    """
    group, timetable = engine.group, plan.timetable
    if timetable is not None:
        plan = replace(plan, timetable=timetable.within(len(group.join_links(timetable.num_links))))
    runs = catalogue.rank_count_error(plan.collective, group.size, [len(host) for host in group.hosts]) is None
    return plan if runs else replace(plan, collective=plan.row.name)


def ranks_needed(rank: int, size: int, num_before: int) -> list[int]:
    """Return the former ranks whose state rank ``rank`` of ``size`` goes on from."""
    return [rank] if size == num_before else sorted({rank % num_before, *range(rank, num_before, size)})


def _round_of(engine: StepEngine) -> State | None:
    """Return what is each rank's own within a round (weights, optimizers, buffers, loss scale); None without rounds."""
    if engine.local is None:
        return None
    return {
        "anchor": engine.local.anchor,
        "num_taken": engine.local.num_taken,
        "weights": [parameter.detach() for parameter in engine.flat_buffers.parameters],
        "optimizers": [optimizer.state_dict() for optimizer in engine.optimizers],
        "buffers": {name: buffer.detach() for name, buffer in persistent_buffers(engine.model)},
        "scale": engine.scale.state_dict(),
    }


def _put_buffers(model: nn.Module, kept: Mapping[str, Tensor]) -> None:
    for name, _ in persistent_buffers(model):
        if name in kept:
            part, _, last = name.rpartition(".")
            put_back(model.get_submodule(part), last, kept[name])


def _shared_out(first: State, mine: list[State], share: float) -> list[State]:
    """Return this rank's share of what waits in the buckets, and all that arrived, as `Buckets.state_dict` has it.

    All ranks hold as much of as many iterations, and a mean over ranks that has arrived is the same on all of them.
    """
    buckets = []
    for number, bucket in enumerate(first["exchanger"]["buckets"]):
        waiting = []
        for index, (last, count, values) in enumerate(bucket["waiting"]):
            total = torch.zeros_like(values)
            for own in (state["exchanger"]["buckets"][number]["waiting"][index][2] for state in mine):
                if bool(torch.isfinite(own).all()):  # else it is lost, as where it is sent
                    total += own.to(total.device)
            waiting.append((last, count, share * total))
        buckets.append({"waiting": waiting, "arrived": bucket["arrived"]})
    return buckets


def _to_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _to_device(each, device) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_device(each, device) for each in value)
    return value
