"""Joining the job: what the TrainingJob and the environment say reaches the group."""

from __future__ import annotations

import os
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from kit.rank_pool import RankError, RankPool
from kit.training.engines import engine_of
from kit.training.job_file import job_file
from torch import nn
from trimtab.control import client as control_client
from trimtab.control.controller import Controller
from trimtab.control.factory import make_controller
from trimtab.control.settings import controller_settings, fit_to_script
from trimtab.control.types import ControllerSettings, ModelFacts, OptimizerFamily
from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.launch.environment.ports import free_ports
from trimtab.plan.constraints import Script
from trimtab.run_files.layout import RunDirectory
from trimtab.session import attach as attachment
from trimtab.session.attach import attach
from trimtab.session.checks import check_devices
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab.transport.rendezvous import torch_store as store_rendezvous
from trimtab.transport.rendezvous.tcp import meet, waiting_for
from trimtab.transport.tcp import SocketTransport
from trimtab_api.catalogue import sources
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import load_training_job

SGD, ADAM = OptimizerFamily("SGD", "sgd"), OptimizerFamily("AdamW", "adam")
UNKNOWN = OptimizerFamily("Invented", "unknown")


@pytest.mark.pattern("a model on another rank's GPU", refused="`put the model on cuda:R, by the variable LOCAL_RANK`")
def test_a_model_on_the_gpu_of_another_rank_is_refused_and_one_on_the_cpu_is_not() -> None:
    check_devices([torch.device("cuda:1"), torch.device("cpu")], local_rank=1)
    with pytest.raises(UserError) as refused:
        check_devices([torch.device("cuda:0"), torch.device("cuda:1")], local_rank=1)
    assert str(refused.value) == (
        "model: 'cuda:0': this process is LOCAL_RANK 1; put the model on cuda:1, by the variable LOCAL_RANK"
    )


def test_a_job_that_says_nothing_of_it_is_steered_as_the_controller_is_by_itself(tmp_path: Path) -> None:
    """The controller's tests build it bare: they speak of what is shipped only while these are the same.

    Local steps, in loops over ``session.batches``, are tested beside it.
    """
    settings = controller_settings(load_training_job(job_file(tmp_path)), SGD)
    assert replace(settings, sources_in_batches=()) == replace(ControllerSettings(), fusions=("fixed",))


@pytest.mark.parametrize(
    ("local_steps", "optimizer", "anywhere", "in_batches"),
    [
        (None, SGD, [0], [1, 4, 16]),
        (None, ADAM, [0], [1, 4, 16]),
        (None, UNKNOWN, [0], []),
        ({}, UNKNOWN, [0, 1, 4, 16], []),
        ({"max": 1}, ADAM, [0, 1], []),
        ({"max": 0}, ADAM, [0], []),
        ({"min": 3, "max": 20}, ADAM, [3, 4, 16, 20], []),
    ],
)
def test_local_steps_may_be_chosen_where_the_job_allows_them_or_by_a_known_optimizer_in_a_loop_over_batches(
    tmp_path: Path, local_steps: Any, optimizer: OptimizerFamily, anywhere: list[int], in_batches: list[int]
) -> None:
    communication = {} if local_steps is None else {"localSteps": local_steps}
    settings = controller_settings(load_training_job(job_file(tmp_path, **communication)), optimizer)
    assert [sources.options(each).get("steps", 0) for each in settings.sources] == anywhere
    assert [sources.options(each).get("steps", 0) for each in settings.sources_in_batches] == in_batches


def test_no_round_is_chosen_that_is_longer_than_the_loop_that_would_end_it(tmp_path: Path) -> None:
    def local_steps(num_steps: float, **communication: Any) -> list[int]:
        settings = controller_settings(load_training_job(job_file(tmp_path, **communication)), ADAM)
        return [sources.options(each).get("steps", 0) for each in settings.in_loop_of(num_steps).sources]

    assert local_steps(10) == [0, 1, 4]
    assert local_steps(inf) == [0, 1, 4, 16]
    assert local_steps(10, localSteps={"min": 3, "max": 20}) == [3, 4]
    assert local_steps(2, localSteps={"min": 3, "max": 20}) == [3, 4, 16, 20], "as the job asks, though all end early"


def test_a_job_that_lets_gradients_wait_for_later_steps_has_no_local_steps_unless_it_asks(tmp_path: Path) -> None:
    settings = controller_settings(load_training_job(job_file(tmp_path, schedules=["wait-free", "deft"])), SGD)
    assert settings.in_loop_of(1000).sources == (sources.default,)


def test_planners_sparsifiers_and_schedules_that_may_be_chosen_each_stand_there_once(tmp_path: Path) -> None:
    fusion = {"bufferSize": "single", "alternatives": ["equal:buffers=5", "single"]}
    selecting = {"sparsifier": "topk", "sparsifierAlternatives": ["tracked", "topk"]}
    job = job_file(tmp_path, fusion=fusion, schedules=["after-backward", "wait-free"], **selecting)
    settings = controller_settings(load_training_job(job), SGD)
    assert settings.sparsifiers == ("topk", "tracked")
    assert settings.fusions == ("single", "equal:buffers=5")
    assert settings.schedules == ("after-backward", "wait-free")


@pytest.mark.parametrize(
    ("script", "schedules", "says"),
    [
        (Script(), ("wait-free", "priority", "deft"), []),
        (Script(is_manual=True), ("wait-free", "priority"), ["deft cannot be followed by a script that steps by hand"]),
        (
            Script(alternates=True),
            ("wait-free", "priority"),
            ["deft cannot be followed by optimizers that take turns"],
        ),
        (
            Script(is_manual=True, is_hook=True),
            ("wait-free",),
            ["priority, deft cannot be followed by a hook of DDP's"],
        ),
    ],
)
def test_a_script_is_told_which_schedules_of_its_job_it_cannot_follow(
    tmp_path: Path, script: Script, schedules: tuple[str, ...], says: list[str]
) -> None:
    said: list[str] = []
    job = load_training_job(job_file(tmp_path, schedules=["wait-free", "priority", "deft"]))
    settings = fit_to_script(controller_settings(job, SGD), script, say=said.append)
    assert settings.schedules == schedules
    assert said == [f"spec.communication.schedules: {each}, and will not be chosen" for each in says]


def test_a_script_is_told_that_it_cannot_follow_rounds_which_its_job_asks_for_and_not_of_those_by_default(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    for communication in ({}, {"localSteps": {"max": 4}}):
        asked = controller_settings(load_training_job(job_file(tmp_path, **communication)), SGD)
        facts = ModelFacts(10, (10,), 2, optimizer=SGD)
        assert make_controller(asked, facts).offers_rounds is (not communication), (
            "of what the job asks for it says nothing"
        )
        settings = fit_to_script(asked, Script(alternates=True), say=said.append)
        assert settings.in_loop_of(1000).sources == (sources.default,)
        assert not make_controller(settings, facts).offers_rounds
    (line,) = said
    assert line.startswith("spec.communication.localSteps: no round can be followed by optimizers that take turns")


@pytest.mark.parametrize(
    ("communication", "formats", "of_dense"),
    [
        ({}, ("float32", "int8", "int4"), ("bfloat16",)),
        ({"collectives": ["all-gather", "spardl"]}, ("float32", "int8", "int4"), ("bfloat16",)),
        ({"valueFormats": ["int8"]}, ("int8",), ()),
        ({"valueFormats": ["int8", "bfloat16"]}, ("int8", "bfloat16"), ("bfloat16",)),
        ({"collectives": ["all-gather"], "valueFormats": ["int2", "float32"]}, ("int2", "float32"), ()),
    ],
)
def test_values_cross_in_the_formats_that_the_job_names_or_that_cost_next_to_nothing(
    tmp_path: Path, communication: Any, formats: tuple[str, ...], of_dense: tuple[str, ...]
) -> None:
    settings = controller_settings(load_training_job(job_file(tmp_path, **communication)), ADAM)
    assert settings.wires == formats
    assert settings.dense_wires == of_dense


def environment_of(rank: int, job: Path, port: int) -> LaunchEnvironment:
    return LaunchEnvironment(
        rank=rank,
        num_ranks=2,
        local_rank=0,
        num_local_ranks=1,
        master_address="127.0.0.1",
        master_port=port,
        interface="lo",
        job=job,
        run_directory=job.parent,
        monitor="127.0.0.1:1",
        seed=0,
        secret="a secret",
    )


def attaching(group: Group, job: Path, port: int, measurement_seconds: float = 0.1) -> tuple[float, list[int]]:
    """The deadline of the ranks' waits, and the ports at which this one still listens."""
    os.environ.update(environment_of(group.rank, job, port).variables())
    control_client.FIRST_MEASUREMENT_SECONDS = measurement_seconds  # there is no monitor to wait for
    model = nn.Linear(2, 1)
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    deadline = engine_of(session).group.transport.deadline
    connections = psutil.Process().net_connections("tcp")
    listening = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]
    session.close()
    return float(deadline), listening


@pytest.fixture
def two() -> Any:
    """Ranks whose environment a test may change."""
    fresh = RankPool()
    yield fresh
    fresh.close()


@pytest.mark.parametrize(("said", "seconds"), [({}, 1800.0), ({"timeout": "45s"}, 45.0)])
def test_ranks_wait_as_long_as_the_job_says_and_leave_no_door_open(
    said: dict[str, str], seconds: float, two: RankPool, tmp_path: Path
) -> None:
    job, port = job_file(tmp_path, policy="Static", plan="dense", **said), free_ports(1)[0]
    for rank in range(2):
        two.tell(rank, attaching, 2, job, port)
    assert [two.answer(rank) for rank in range(2)] == [(seconds, []), (seconds, [])]


def test_rank_0_waits_for_the_monitor_for_less_time_than_the_others_wait_for_rank_0(
    two: RankPool, tmp_path: Path
) -> None:
    job, port = job_file(tmp_path, policy="Adaptive", timeout="4s"), free_ports(1)[0]
    for rank in range(2):
        two.tell(rank, attaching, 2, job, port, 20.0)
    assert [two.answer(rank) for rank in range(2)] == [(4.0, []), (4.0, [])]


def telling_what_is_done(group: Group, job: Path, port: int) -> list[str]:
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "tell_starting", lambda _, sentence: said.append(sentence))
        attaching(group, job, port)
    return said


def attaching_on_one_worker(group: Group, job: Path, port: int) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        alone = replace(environment_of(group.rank, job, port), num_local_ranks=2, local_rank=group.rank)
        patch.setitem(globals(), "environment_of", lambda *_: alone)
        return telling_what_is_done(group, job, port)


def proposing(group: Group, job: Path, port: int) -> tuple[str, ...]:
    """The ways to sum a dense gradient that are proposed where the transport sums by itself, as NCCL's does."""
    told: list[tuple[str, ...]] = []

    def telling(settings: ControllerSettings, *facts: Any, **options: Any) -> Controller:
        told.append(settings.dense_collectives)
        return make_controller(settings, *facts, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attachment, "make_controller", telling)
        patch.setattr(SocketTransport, "has_own_all_reduce", True)
        attaching(group, job, port)
    return told[0]


def test_no_other_way_to_sum_is_proposed_where_the_transport_sums_as_it_likes(two: RankPool, tmp_path: Path) -> None:
    job, port = job_file(tmp_path), free_ports(1)[0]
    for rank in range(2):
        two.tell(rank, proposing, 2, job, port)
    assert [two.answer(rank) for rank in range(2)] == [(), ()]


def test_one_worker_has_no_network_to_measure(two: RankPool, tmp_path: Path) -> None:
    job, port = job_file(tmp_path), free_ports(1)[0]
    for rank in range(2):
        two.tell(rank, attaching_on_one_worker, 2, job, port)
    assert "measuring the network" not in two.answer(0)
    assert two.answer(1) == []


def test_rank_0_says_what_is_done_before_the_first_step(two: RankPool, tmp_path: Path) -> None:
    job, port = job_file(tmp_path, policy="Static", plan="dense"), free_ports(1)[0]
    for rank in range(2):
        two.tell(rank, telling_what_is_done, 2, job, port)
    assert two.answer(0) == [
        "waiting for rank 1 of 2 to join",
        "measuring the network",
        "choosing the first plan",
        "sending the weights of rank 0 to all ranks",
        "loading kernels, which are compiled the first time that a machine trains",
        "waiting for the other ranks to have their kernels ready",
        "all ranks are ready; the first step is under way",
    ]
    assert two.answer(1) == []


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ([3], "waiting for rank 3 of 8 to join"),
        ([2, 3], "waiting for ranks 2 and 3 of 8 to join"),
        ([1, 2, 3, 6, 7], "waiting for ranks 1, 2, 3, 6 and 7 of 8 to join"),
        ([1, 2, 3, 5, 6, 7], "waiting for 6 of 8 ranks to join, the first of them rank 1"),
    ],
)
def test_ranks_that_are_waited_for_are_named(missing: list[int], said: str) -> None:
    assert waiting_for(missing, 8) == said


def test_ranks_missing_in_the_store_of_a_script_started_by_hand_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(variable, "is replaced")
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(store_rendezvous, "_QUIET_SECONDS", 0.0)
    told: list[list[int]] = []
    with pytest.raises(CommunicationError, match="rank 1"):
        store_rendezvous.meet_in_store("127.0.0.1", free_ports(1)[0], 0, 2, 0.5, endpoint={}, say=told.append)
    assert told == [[1]]


def coming_alone(group: Group, num_ranks: int, port: int) -> None:
    meet("127.0.0.1", port, group.rank, num_ranks, timeout=2.0, secret=b"", endpoint={})


def test_a_rank_that_never_comes_is_named_by_those_who_came(two: RankPool) -> None:
    port = free_ports(1)[0]
    for rank in range(2):
        two.tell(rank, coming_alone, 2, 4, port)
    said = []
    for rank in range(2):
        with pytest.raises(RankError) as failure:
            two.answer(rank)
        assert failure.value.kind is CommunicationError
        said.append(failure.value.message)
    in_vain = f"rank 2: did not come to 127.0.0.1:{port} within 2 s, nor did ranks 3; "
    assert said[0].startswith(in_vain)
    assert said[1].startswith(in_vain)


def test_a_first_rank_that_never_comes_is_named() -> None:
    port = free_ports(1)[0]
    with pytest.raises(CommunicationError, match=rf"rank 0: did not let the ranks meet at 127.0.0.1:{port}: "):
        meet("127.0.0.1", port, 1, 2, timeout=1.0, secret=b"", endpoint={})
