"""Weights whose step is under way: whoever takes one from the model, however, has it as under wait-free."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from kit.training.late_ranks import LATE, STEPS, WIDTH, Script, assert_as_wait_free, by_name, layers, plain, trained
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from trimtab.engine.deferred.lazy_parameters import LazyParameters
from trimtab_api.errors import UserError

After = Callable[[Script], Any]
"""What a script does after its step."""


def after_step(do: After) -> Callable[[Script, Tensor, int], None]:
    def step(of: Script, x: Tensor, number: int) -> None:
        of.model(x).square().mean().backward()
        of.session.step()
        of.look()
        do(of)

    return step


def vector(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([each.detach().flatten() for each in tensors])


def saved_whole(of: Script) -> None:
    saved = io.BytesIO()
    torch.save(of.model, saved)
    assert b"trimtab" not in saved.getvalue()
    saved.seek(0)
    read = torch.load(saved, weights_only=False)
    assert not any(isinstance(part._parameters, LazyParameters) for part in read.modules())
    of.seen.append(weights_of(read))


def copied(of: Script) -> None:
    copied = copy.deepcopy(of.model)
    assert not any(isinstance(part._parameters, LazyParameters) for part in copied.modules())
    of.seen.append(weights_of(copied))


def parts_saved(of: Script) -> None:
    for part in reversed(list(of.model.children())):
        of.seen.extend(value.clone() for value in part.state_dict().values())


def averaged(of: Script) -> None:
    average = of.kept.setdefault("average", AveragedModel(of.model))
    average.update_parameters(of.model)
    of.seen.append(weights_of(average))


def looked_at_one(of: Script) -> None:
    of.seen.append(of.model.get_parameter("4.bias").detach().clone())
    of.seen.append(of.model[2].weight.detach().clone())


def loaded(of: Script) -> None:
    of.model.load_state_dict({name: value * 0.9 for name, value in of.model.state_dict().items()})


def loaded_unseen(of: Script) -> None:
    if "state" in of.kept:
        of.model.load_state_dict(of.kept["state"])
    of.kept["state"] = {name: value.clone() for name, value in of.model.state_dict().items()}


def clamped(of: Script) -> None:
    with torch.no_grad():
        for p in of.model.parameters():
            p.clamp_(-0.1, 0.1)
    for layer in of.model.children():
        if isinstance(layer, nn.Linear):
            layer.bias.data.mul_(0.5)


def evaluated_in_part(of: Script) -> None:
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        of.seen.append(of.model[2](torch.ones(1, 8)).float().clone())


def called_functionally(of: Script) -> None:
    with torch.no_grad():
        weights = dict(of.model.named_parameters())
        of.seen.append(torch.func.functional_call(of.model, weights, (torch.ones(1, WIDTH),)).clone())


def changed_in_structure(of: Script) -> None:
    part = of.model[4]
    part.register_parameter("extra", None)
    of.seen.append(torch.tensor([name in part._parameters for name in ("extra", "weight")]))
    del part.extra
    assert list(dict(part._parameters)) == list(part._parameters.copy()) == ["weight", "bias"]


AFTER: dict[str, After] = by_name(
    saved_whole,
    copied,
    parts_saved,
    averaged,
    looked_at_one,
    loaded,
    loaded_unseen,
    clamped,
    evaluated_in_part,
    called_functionally,
    changed_in_structure,
)


@pytest.mark.pattern(
    "weights read from the model after a step (averages, copies, files), with deferred gradients",
    works="complete; read `model.parameters()` anew each time",
)
@pytest.mark.parametrize("schedule", LATE)
@pytest.mark.parametrize("do", AFTER)
def test_weights_taken_from_the_model_after_a_step_are_whole(do: str, schedule: str) -> None:
    assert assert_as_wait_free(schedule, after_step(AFTER[do])).num_late >= STEPS


def test_a_model_is_left_as_it_was() -> None:
    of, _ = trained(LATE[0])
    assert all(type(part._parameters) is type(nn.Linear(1, 1)._parameters) for part in of.model.modules())


@pytest.mark.parametrize("name", ["Muon", "Adafactor"])
def test_a_late_step_inside_of_autocast_computes_as_outside(name: str) -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):  # threads empty each other's cache
            loss = of.model(x).float().square().mean()
        loss.backward()
        of.session.step()

    def without_biases() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((WIDTH, 8), (8, 8), (8, 4))))

    optimizer = getattr(torch.optim, name)
    assert_as_wait_free(LATE[0], step, without_biases, lambda model: optimizer(model.parameters(), lr=0.01))


class TiedAutoencoder(nn.Module):
    """Uses a layer's weight before the layer runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.decode, self.middle = nn.Linear(6, WIDTH), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decode(self.middle(torch.tanh(nn.functional.linear(x, self.decode.weight.t()))))
        return out


class UsesLists(nn.Module):
    """Takes some weights from lists of its own, and runs others' modules."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.ParameterList([torch.randn(8, WIDTH) / 4]), nn.Linear(8, 4)
        self.cells = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.cells(nn.functional.linear(x, self.first[0]).unsqueeze(1))[0][:, -1])
        return out


def normalized(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's older ones are deprecated
        return nn.Sequential(*(norm(each) if isinstance(each, nn.Linear) else each for each in layers()))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "tied autoencoder": TiedAutoencoder,
    "lists of weights": UsesLists,
    "weight_norm": lambda: normalized(nn.utils.weight_norm),
    "spectral_norm": lambda: normalized(nn.utils.spectral_norm),
    "parametrized": lambda: normalized(nn.utils.parametrizations.weight_norm),
}


@pytest.mark.pattern(
    "weights used before their module runs (tied autoencoders, `weight_norm`), with deferred gradients",
    works="work",
)
@pytest.mark.parametrize("schedule", LATE)
@pytest.mark.parametrize("model", MODELS)
def test_weights_used_before_their_module_runs_are_whole(model: str, schedule: str) -> None:
    assert assert_as_wait_free(schedule, make_model=MODELS[model]).num_late == STEPS


@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_penalty_over_all_weights_is_of_whole_ones(comes: str) -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        out = of.model(x) if comes == "after" else None
        penalty = sum((p.abs().sum() + p.square().sum() for p in of.model.parameters()), torch.zeros(()))
        out = of.model(x) if out is None else out
        (out.square().mean() + 0.01 * penalty).backward()
        of.session.step()

    assert_as_wait_free(LATE[0], step)


def test_parts_that_are_compiled_and_called_by_themselves_have_whole_weights() -> None:
    def model() -> nn.Module:
        made = layers()
        made[4] = torch.compile(made[4], backend="eager")  # type: ignore[assignment]
        return made

    def step(of: Script, x: Tensor, number: int) -> None:
        out = x
        for part in of.model.children():
            out = part(out)
        out.square().mean().backward()
        of.session.step()

    assert assert_as_wait_free(LATE[0], step, make_model=model).num_late == STEPS


class Keeps(TiedAutoencoder):
    """Uses the weight that it has kept, not the module's."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [self.decode.weight]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decode(self.middle(torch.tanh(nn.functional.linear(x, self.kept[0].t()))))
        return out


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("make", [TiedAutoencoder, Keeps, lambda: in_place(Keeps())])
def test_a_compiled_model_has_whole_weights_whatever_its_code_makes_of_them(make: Callable[[], nn.Module]) -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        called = of.model
        if called._compiled_call_impl is None:
            called = of.kept.setdefault("compiled", torch.compile(of.model, backend="eager"))
        called(x).square().mean().backward()
        of.session.step()

    assert assert_as_wait_free(LATE[0], step, make_model=make).num_late == STEPS


def test_scripted_parts_wait_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    def model() -> nn.Module:
        made = layers()
        made[4] = torch.jit.script(made[4])
        return made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert assert_as_wait_free(LATE[0], make_model=model).num_late == 0
    assert "scripted modules take no hooks" in capsys.readouterr().err


@pytest.mark.pattern(
    "parameter references from before a step, changed after it, with deferred gradients",
    refused="`was modified while its update was still pending`",
)
def test_a_change_of_weights_kept_from_before_is_refused_where_their_step_would_undo_it() -> None:
    def step(of: Script, x: Tensor, number: int) -> None:
        kept = of.kept.setdefault("parameters", list(of.model.parameters()))
        plain(of, x, number)
        with torch.no_grad():
            for p in kept:
                p.clamp_(-0.1, 0.1)

    trained("wait-free", step)
    with pytest.raises(UserError, match="read parameters through model") as refused:
        trained(LATE[0], step)
    assert "\n" not in str(refused.value)
