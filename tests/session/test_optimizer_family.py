"""Whose kin an optimizer is: by its class, by those it is derived from, by what it shows of itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn, optim
from trimtab.session.optimizer_family import family_of


def parameters():
    return [nn.Parameter(torch.ones(3, 3))]


@pytest.mark.parametrize(
    "kind",
    [optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adamax, optim.Adagrad, optim.RMSprop, optim.Adadelta,
     optim.Adafactor],
)  # fmt: skip
def test_torchs_own_that_divide_by_a_running_size(kind):
    assert family_of(kind(parameters())).kind == "adam"
    assert family_of(kind(parameters())).name == kind.__name__


def test_local_steps_leave_mean_moments_to_those_that_keep_both_as_torchs_adam_does():
    for kind in (optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, named("Mine", optim.AdamW)):
        assert family_of(kind(parameters())).has_mean_moments
    others = [optim.Adamax(parameters()), optim.Adafactor(parameters()), optim.SGD(parameters(), lr=0.1)]
    for other in (*others, optim.AdamW(parameters(), betas=(0.3, 0.999)), named("FusedAdam")(parameters())):
        assert not family_of(other).has_mean_moments
        assert not family_of(optim.AdamW(parameters()), other).has_mean_moments, "of several, all must"


@pytest.mark.parametrize("kind", [optim.SGD, optim.ASGD])
def test_torchs_own_that_add_up_what_arrives(kind):
    assert family_of(kind(parameters(), lr=0.1)).kind == "sgd"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_stays_sgd_once_it_has_stepped(momentum):
    optimizer = optim.SGD(parameters(), lr=0.1, momentum=momentum)
    step(optimizer)
    assert family_of(optimizer).kind == "sgd"


def step(optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


class Plain(optim.Optimizer):
    """An optimizer of somebody's own, that shows nothing of itself."""

    def __init__(self, parameters, **defaults):
        super().__init__(parameters, {"lr": 0.1, **defaults})

    def step(self, closure=None):
        pass


def named(name, *bases):
    return type(name, bases or (Plain,), {})


@pytest.mark.parametrize("name", ["AdamW8bit", "FusedAdam", "FusedLAMB", "Lion", "AdEMAMix", "Muon", "Prodigy", "SOAP"])
def test_others_kin_of_adam_by_their_names(name):
    assert family_of(named(name)(parameters())).kind == "adam"


@pytest.mark.parametrize("name", ["FusedSGD", "SGD8bit", "SGDW"])
def test_others_kin_of_sgd_by_their_names(name):
    assert family_of(named(name)(parameters())).kind == "sgd"


def test_a_class_derived_from_one_is_of_its_family():
    assert family_of(named("Mine", optim.AdamW)(parameters())).kind == "adam"
    assert family_of(named("Mine", optim.SGD)(parameters(), lr=0.1)).kind == "sgd"


def test_two_betas_speak_for_adam():
    assert family_of(Plain(parameters(), betas=(0.9, 0.99))).kind == "adam"


def test_they_do_so_even_in_what_is_derived_from_sgd():
    optimizer = named("Mine", optim.SGD)(parameters(), lr=0.1)
    optimizer.param_groups[0]["betas"] = (0.9, 0.99)
    assert family_of(optimizer).kind == "adam"


@pytest.mark.parametrize("key", ["exp_avg_sq", "max_exp_avg_sq", "exp_avg_sq_row", "square_avg", "exp_inf"])
def test_a_second_moment_in_the_state_speaks_for_adam(key):
    optimizer = Plain(parameters())
    optimizer.state[optimizer.param_groups[0]["params"][0]] = {"step": 1, key: torch.zeros(3, 3)}
    assert family_of(optimizer).kind == "adam"


def test_one_that_shows_nothing_is_unknown_and_keeps_its_name():
    family = family_of(named("Frobnicator")(parameters(), momentum=0.9))
    assert (family.kind, family.name) == ("unknown", "Frobnicator")


@pytest.mark.parametrize(("wrapped", "kind"), [(optim.SGD, "sgd"), (optim.AdamW, "adam")])
@pytest.mark.parametrize("attribute", ["optimizer", "optim", "base_optimizer"])
def test_a_wrapper_is_of_the_family_of_what_it_wraps(attribute, wrapped, kind):
    wrapper = named("Wrapper")(parameters())
    setattr(wrapper, attribute, wrapped(parameters(), lr=0.1))
    assert family_of(wrapper).kind == kind


def test_of_several_the_one_that_pays_most_for_compression_counts():
    sgd, adam, own = optim.SGD(parameters(), lr=0.1), optim.AdamW(parameters()), named("Mine", Plain)(parameters())
    assert (family_of(sgd, adam).kind, family_of(sgd, adam).name) == ("adam", "SGD and AdamW")
    assert family_of(sgd, own).kind == "unknown"
    assert family_of(sgd, sgd).kind == "sgd"
