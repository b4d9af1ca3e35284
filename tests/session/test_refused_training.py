"""What cannot work is refused at `attach`, or where it is first seen, in a line that names the remedy."""

from __future__ import annotations

import contextlib
import gc
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training.random_training import make_session, network
from torch import nn
from trimtab.control.fallback import DenseFallback
from trimtab.control.monitors import guards
from trimtab.control.monitors.guards import ResidualWatch
from trimtab.control.types import StepReport
from trimtab.plan.plan import Plan, dense_plan
from trimtab.session import checks as attach_checks
from trimtab_api.errors import UserError


def model_and(optimizer: Any, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    return model, optimizer(model.parameters(), **options)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_a_single_process_of_another_launcher_trains_plainly(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, "1")
    session = trimtab.attach(*model_and(torch.optim.SGD, lr=0.1))
    assert (session.rank, session.num_ranks) == (0, 1)
    session.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.pattern(
    "an optimizer that needs a closure (LBFGS)",
    refused="`evaluates the model by a closure several times a step, ...`",
)
def test_an_optimizer_that_steps_by_a_closure_is_refused() -> None:
    with pytest.raises(UserError, match=r"optimizer: 'LBFGS': evaluates the model by a closure"):
        trimtab.attach(*model_and(torch.optim.LBFGS))


@pytest.mark.pattern("`SparseAdam`", refused="`takes sparse gradients only, ...`")
def test_sparse_gradients_are_refused_where_the_optimizer_takes_no_other() -> None:
    model = nn.Embedding(10, 2, sparse=True)
    with pytest.raises(UserError, match=r"optimizer: 'SparseAdam'.*sparse=False"):
        attach_checks.check_optimizer_of_many_ranks(torch.optim.SparseAdam(model.parameters()))
    attach_checks.check_optimizer_of_many_ranks(torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.pattern(
    "a model with nothing to train, on several ranks", refused="`has no parameter that requires a gradient`"
)
def test_a_model_with_nothing_to_train_is_refused() -> None:
    model = nn.Linear(2, 1).requires_grad_(False)
    with pytest.raises(
        UserError, match=r"model: 'Linear': has no parameter that requires a gradient, .* before attach"
    ):
        attach_checks.check_model_of_many_ranks(model)


@pytest.mark.pattern(
    "a model on the device `meta`",
    refused="`call model.to_empty(...) and initialize it, ...`",
)
def test_a_model_without_numbers_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 1)
    with pytest.raises(UserError, match=r"model parameter weight: is on the meta device .* before attach"):
        attach_checks.check_model_of_many_ranks(model)


def building_another(rank: int, size: int, how: str) -> str:
    """What `attach` says where rank 1 has built another model than the others."""
    model = nn.Sequential(nn.Linear(4, 3 if rank == 1 and how == "wider" else 2), nn.BatchNorm1d(2))
    if rank == 1 and how == "frozen":
        model[0].weight.requires_grad_(False)
    if rank == 1 and how == "longer":
        model.append(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UserError) as refused:
        trimtab.Session(model, optimizer, group=trimtab_group(), plan=dense_plan(), recorder=recorder())
    return str(refused.value)


@pytest.mark.pattern("models that differ between ranks", refused="`differs between ranks: rank 1 has ...`")
@pytest.mark.parametrize(
    ("how", "difference"),
    [
        ("wider", "0.weight [3, 4] torch.float32 where rank 0 has 0.weight [2, 4] torch.float32"),
        ("frozen", "0.weight [2, 4] torch.float32, frozen where rank 0 has 0.weight [2, 4] torch.float32"),
        ("longer", "2.weight [1, 2] torch.float32 where rank 0 has buffer 1.running_mean [2] torch.float32"),
    ],
)
def test_models_that_differ_between_ranks_are_refused_on_all(rank_pool: RankPool, how: str, difference: str) -> None:
    for said in rank_pool.run_in_process_group(2, building_another, how):
        assert said.startswith(f"model: differs between ranks: rank 1 has {difference}")
        assert "build the same model on every rank" in said


@pytest.mark.pattern(
    "an optimizer of parameters outside of the model",
    refused="`... one nn.ModuleList of all that it steps, ...`",
)
def test_an_optimizer_of_parameters_outside_of_the_model_is_refused() -> None:
    model, scale = nn.Linear(2, 1), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
    with pytest.raises(UserError, match=r"optimizer: steps parameters that are not in the model; .*nn\.ModuleList"):
        trimtab.attach(model, optimizer)
    trimtab.attach(nn.ModuleList([model, nn.ParameterList([scale])]), optimizer).close()


def changed_after_attach(rank: int, size: int, how: str) -> str:
    """What the first step after the change is told."""
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = trimtab.Session(model, optimizer, group=trimtab_group(), plan=dense_plan(), recorder=recorder())
    inputs = torch.ones(2, 8)
    if how == "converted":
        model, inputs = model.double(), inputs.double()
    elif how == "loaded":
        model.load_state_dict({name: each + 1 for name, each in model.state_dict().items()}, assign=True)
    elif how == "new layer":
        model[0] = nn.Linear(8, 4)
        model[1] = nn.Linear(4, 1)
    try:
        model(inputs).sum().backward()
        optimizer.step()
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


@pytest.mark.pattern(
    "`model.double()`, `model.to(...)` after `attach`", refused="`was float32 on ... when the session was attached`"
)
@pytest.mark.pattern(
    "`load_state_dict(assign=True)`, all layers replaced after `attach`", refused="`was replaced after attach`"
)
@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ("converted", "'torch.float64 on cpu': was float32 on cpu when the session was attached"),
        ("loaded", "was replaced after attach, .*load_state_dict without assign=True"),
        ("new layer", "was replaced after attach, .*create a new optimizer, and attach"),
    ],
)
def test_a_model_that_is_made_another_after_attach_is_refused(rank_pool: RankPool, how: str, complaint: str) -> None:
    for said in rank_pool.run_in_process_group(2, changed_after_attach, how):
        assert re.match(rf"model parameter \d\.(weight|bias): {complaint}", said), said


def with_sparse_gradients(rank: int, size: int) -> Any:
    torch.manual_seed(0)
    model = nn.Embedding(10, 2, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model.weight.detach().clone()
    session = trimtab.Session(
        model,
        optimizer,
        group=trimtab_group(),
        plan=dense_plan(),
        recorder=recorder(),
    )
    model(torch.tensor([rank])).sum().backward()
    session.step()
    session.close()
    return before - model.weight.detach()


def trimtab_group() -> Any:
    from trimtab.transport.group import Group

    return Group.connect()


def recorder() -> Any:
    from trimtab.run_files.recorder import Recorder

    return Recorder(None)


@pytest.mark.pattern("sparse embeddings", works="exchanged as dense gradients")
def test_sparse_gradients_cross_as_dense_ones(rank_pool: RankPool) -> None:
    for moved in rank_pool.run_in_process_group(2, with_sparse_gradients):
        expected = torch.zeros(10, 2)
        expected[:2] = 0.5
        torch.testing.assert_close(moved, expected)


def test_what_is_to_be_put_back_has_a_state() -> None:
    with pytest.raises(UserError, match=r"extra_state: 'list': give each a state_dict"):
        trimtab.attach(*model_and(torch.optim.SGD, lr=0.1), extra_state=[[]])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"extra_state": 3}, "extra_state: 'int': is a list"),
        ({"scaler": 3}, "scaler: 'int': is a torch.amp.GradScaler"),
        ({"scheduler": 0.1}, "scheduler: 'float': is a scheduler of torch.optim.lr_scheduler"),
        ({"plan": 0.01}, "plan: '0.01': is a plan's name, such as '0.01/all-gather'"),
        ({"job": 0}, "job: '0': is a path"),
    ],
)
def test_an_argument_of_another_kind_is_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        trimtab.attach(*model_and(torch.optim.SGD, lr=0.1), **arguments)


@pytest.mark.parametrize(("old", "new"), [("turns", "alternating_optimizers"), ("also", "extra_state")])
def test_an_argument_under_its_old_name_works_and_the_new_one_is_named(old: str, new: str) -> None:
    model, optimizer = model_and(torch.optim.SGD, lr=0.1)
    with pytest.warns(FutureWarning, match=rf"attach\(\): {old}= is now {new}="):
        trimtab.attach(model, [optimizer], **{old: []}).close()
    with pytest.raises(TypeError, match=new):
        trimtab.attach(model, [optimizer], **{old: [], new: []})


def test_an_optimizer_is_no_scheduler() -> None:
    model, optimizer = model_and(torch.optim.SGD, lr=0.1)
    with pytest.raises(UserError, match=r"scheduler: 'SGD': is a scheduler of torch\.optim\.lr_scheduler"):
        trimtab.attach(model, optimizer, scheduler=optimizer)


@pytest.mark.pattern("one process, no launcher", works="plain training, bfloat16 included")
def test_one_process_trains_in_bfloat16_and_without_an_arena() -> None:
    model = nn.Linear(2, 1).to(torch.bfloat16)
    session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.5))
    before = model.weight.detach().clone()
    model(torch.ones(3, 2, dtype=torch.bfloat16)).sum().backward()
    session.step()
    assert not torch.equal(before, model.weight)
    assert not session.debug_state().residual
    session.close()


def test_one_process_refuses_an_optimizer_step_left_in_place_and_a_closure() -> None:
    model, optimizer = model_and(torch.optim.SGD, lr=0.5)
    session = trimtab.attach(model, optimizer)
    model(torch.ones(3, 2)).sum().backward()
    session.step()
    with pytest.raises(UserError, match=r"without optimizer\.step\(\)"):
        optimizer.step()
    with pytest.raises(UserError, match="takes the loss, not a closure"):
        session.step(lambda: torch.zeros(1))  # type: ignore[arg-type]
    session.close()
    optimizer.step()
    with pytest.raises(UserError, match="the session is closed"):
        session.step()


def a_second_session(rank: int, size: int) -> tuple[str, str]:
    session, _, _ = make_session(Plan.parse("dense"), network())
    attach_checks.only_session(session)
    said = ""
    try:
        attach_checks.refuse_second_session()
    except UserError as error:
        said = str(error)
    session.close()
    attach_checks.refuse_second_session()
    del session
    gc.collect()
    attach_checks.refuse_second_session()
    return said, "and then goes on"


@pytest.mark.pattern(
    "two models, a session each",
    refused="`... attach one nn.ModuleList of all models ...`",
)
def test_a_second_session_is_refused_while_the_first_is_open(rank_pool: RankPool) -> None:
    for said, then in rank_pool.run_in_process_group(2, a_second_session):
        assert "this process already has an open session" in said
        assert "close() the first" in said
        assert then


def infinite(rank: int, size: int, plan: str) -> str:
    model = network()
    session, _, _ = make_session(Plan.parse(plan), model)
    if rank == 1:
        model[4].weight.register_hook(lambda grad: grad * float("inf"))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        model(torch.randn(8, 8)).square().sum().backward()
        session.step()
    session.close()
    return said.getvalue()


@pytest.mark.parametrize("plan", ["dense", "0.1/all-gather"])
def test_the_rank_at_fault_names_the_parameter_that_is_not_finite(plan: str, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, infinite, plan)
    assert first == ""
    assert second == "rank 1, step 0: gradient not finite in 4.weight; the step is dropped on all ranks\n"


@pytest.mark.parametrize(("scale", "guarded"), [(65536.0, False), (1.0, True)])
def test_steps_that_a_scaler_drops_while_it_finds_its_scale_ban_no_plan(scale: float, guarded: bool) -> None:
    fallback = DenseFallback()
    for step in range(8):
        fallback.observe(StepReport(step, dense_plan(), 0.2, 0.1, 0.0, 0.1, 0, 0, 1.0, 0.0, False, loss_scale=scale))
    assert (guards.alarm(fallback.num_dropped_in_a_row, ResidualWatch(), [], None) is not None) == guarded


def test_the_names_that_torch_has_for_what_hooks_need_are_there() -> None:
    """Not public: without them a gradient would be sent before its hooks, or a trial's scheduler go unseen."""
    parameter = nn.Parameter(torch.ones(1))
    handle = parameter.register_post_accumulate_grad_hook(lambda _: None)
    assert list(parameter._post_accumulate_grad_hooks) == [handle.id]  # type: ignore[attr-defined]
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    assert not hasattr(optimizer.step, "_wrapped_by_lr_sched")
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert hasattr(optimizer.step, "_wrapped_by_lr_sched")
    assert torch._C._current_graph_task_id() == -1
    assert torch._C._current_autograd_node() is None
