"""Collectives between hosts whose ranks sum first: the same law, for every collective and any hosts of equal size."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from kit.in_process import Ranks
from trimtab.plan.plan import Plan
from trimtab_api import catalogue
from trimtab_api.catalogue import COLLECTIVES, DENSE_COLLECTIVES
from trimtab_api.errors import UserError

LENGTHS = (1, 4, 1009)
#: Hosts, and ranks of each.
LAYOUTS = ((2, 2), (2, 3), (3, 2), (1, 3))


def plan_of(collective: str, per_host: int, ratio: float = 0.1) -> Plan:
    """The plan of a collective between hosts."""
    text = f"{collective}:per_host={per_host}"
    return Plan.parse(text) if collective in DENSE_COLLECTIVES else Plan(ratio, text, "topk")


def hosts_of(num_hosts: int, per_host: int) -> tuple[tuple[int, ...], ...]:
    """Ranks are dealt out to hosts in turn, as mpirun does it by node."""
    return tuple(tuple(range(host, num_hosts * per_host, num_hosts)) for host in range(num_hosts))


@pytest.mark.parametrize(("num_hosts", "per_host"), LAYOUTS)
def test_every_collective_conserves_between_hosts(num_hosts: int, per_host: int) -> None:
    size = num_hosts * per_host
    for collective, n in product(COLLECTIVES, LENGTHS):
        ranks = Ranks(plan_of(collective, per_host), size, n, hosts=hosts_of(num_hosts, per_host))
        random = torch.Generator().manual_seed(n)
        for _ in range(2):
            grads = [torch.randn(n, generator=random) for _ in range(size)]
            accs = torch.stack([grad + held for grad, held in zip(grads, ranks.residuals, strict=True)]).double()
            updates, exchanged = ranks.exchange_all(grads)
            residuals = torch.stack(ranks.residuals).double()
            missing = accs.sum(0) - size * updates[0].double() - residuals.sum(0)
            rounding = 4 * size * (2**-24 * accs.abs().sum(0) + 2**-149)
            assert (missing.abs() <= rounding).all(), (collective, n)
            assert all(torch.equal(update, updates[0]) for update in updates), (collective, n)
            votes = [each.vote for each in exchanged]
            assert all(torch.equal(vote, votes[0]) for vote in votes)
            assert votes[0].tolist() == [size, sum(range(size))], (collective, n)
            for each, residual in zip(exchanged, ranks.residuals, strict=True):
                squared = residual.double().square().sum().item()
                assert each.squared_norm_after == pytest.approx(squared, rel=1e-4, abs=1e-4)
                if each.sent is not None:
                    assert each.sent.unique().numel() == each.sent.numel()
        ranks.close()


def test_a_host_is_one_rank_to_the_collective_and_its_residual_lies_in_parts() -> None:
    n, size = 1000, 4
    grads = [torch.randn(n, generator=torch.Generator().manual_seed(rank)) for rank in range(size)]
    ranks = Ranks(plan_of("all-gather", 2), size, n, hosts=((0, 1), (2, 3)))
    update, exchanged = ranks.exchange(grads)
    expected = torch.zeros(n)
    for host, part in product((0, 2), (slice(0, 500), slice(500, 1000))):
        summed = (grads[host] + grads[host + 1])[part]
        chosen = summed.abs().topk(50).indices
        expected[part].index_add_(0, chosen, summed[chosen] / size)
    torch.testing.assert_close(update, expected)
    assert not ranks.residuals[0][500:].any()
    assert not ranks.residuals[1][:500].any()
    for host in (0, 2):
        held = ranks.residuals[host] + ranks.residuals[host + 1]
        assert not held[exchanged[host].sent.long()].any(), "cleared where its host sent"
        assert torch.equal(exchanged[host].sent, exchanged[host + 1].sent)
    ranks.close()


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_between_hosts_it_costs_the_closed_form_of_a_rank_a_host(collective: str) -> None:
    n, num_hosts, per_host = 40_000, 4, 2
    plan = plan_of(collective, per_host, 0.01)
    hosts = hosts_of(num_hosts, per_host)
    ranks = Ranks(plan, num_hosts * per_host, n, hosts=hosts)
    generator = torch.Generator().manual_seed(1)
    _, exchanged = ranks.exchange([torch.randn(n, generator=generator) for _ in range(num_hosts * per_host)])
    ends = catalogue.cost_range(plan.collective, 4 * n, plan.ratio, num_hosts * per_host)
    for host in hosts:
        crossed = sum(exchanged[rank].num_bytes - exchanged[rank].figures["host_bytes"] for rank in host)
        assert 0 < crossed <= ends.most.bytes + 16 * per_host * 4 * exchanged[0].num_messages
    assert {each.num_messages for each in exchanged} == {ends.least.messages}
    inside = exchanged[0].figures["host_bytes"]
    assert inside <= 4 * n * (1 if plan.is_dense else 0.5 + 2 * 0.01 * num_hosts) + 64
    ranks.close()


@pytest.mark.parametrize("collective", ["exdyna", "ok-topk", "spardl:teams=3"])
def test_what_is_carried_is_saved_and_goes_on_as_if_never_stopped(collective: str) -> None:
    n, size = 900, 6
    hosts = ((0, 1), (2, 3), (4, 5))
    random = torch.Generator().manual_seed(3)
    steps = [[torch.randn(n, generator=random) for _ in range(size)] for _ in range(4)]
    plan = plan_of(collective, 2)
    through = Ranks(plan, size, n, hosts=hosts)
    for grads in steps[:2]:
        through.exchange(grads)
    resumed = Ranks(plan, size, n, hosts=hosts)
    resumed.load_state_dict(through.state_dict())
    through.exchange(steps[0], commits=False)  # a dropped step leaves no trace
    for grads in steps[2:]:
        assert torch.equal(through.exchange(grads)[0], resumed.exchange(grads)[0])
    for one, other in zip(through.residuals, resumed.residuals, strict=True):
        assert torch.equal(one, other)
    for scheme in through.schemes:
        scheme.rebucket([(0, n)], [(0, 300), (300, n)])
    through.exchange(steps[0])
    through.close()
    resumed.close()


@pytest.mark.parametrize(
    ("hosts", "complaint"),
    [
        (((0,), (1,), (2,), (3,)), "here hosts have 1; leave per_host out"),
        (((0, 1, 2), (3,)), "here hosts have 1 or 3; leave"),
        (((0, 1, 2, 3),), "here hosts have 4; leave"),
    ],
)
def test_hosts_of_other_sizes_are_refused_in_one_line(hosts: tuple[tuple[int, ...], ...], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as refusal:
        Ranks(plan_of("spardl", 2), 4, 100, hosts=hosts)
    assert "\n" not in str(refusal.value)


def test_what_does_not_run_on_as_many_hosts_is_refused() -> None:
    assert catalogue.rank_count_error("spardl:teams=3:per_host=2", 6) is None
    assert "use one of 1, 3" in (catalogue.rank_count_error("spardl:teams=2:per_host=2", 6) or "")
    assert "5 ranks make no such hosts" in (catalogue.rank_count_error("all-gather:per_host=2", 5) or "")


def test_ranks_that_share_a_device_are_charged_for_all_that_leaves_it() -> None:
    alone = catalogue.collective_cost("all-gather", 1e6, 0.01, 8)
    shared = catalogue.collective_cost("all-gather", 1e6, 0.01, 8, on_each=4)
    assert shared.messages == alone.messages
    assert shared.bytes == pytest.approx(alone.bytes * 4 * 4 / 7)
    ring = [catalogue.collective_cost("dense-ring", 1e6, 1, 8, on_each=each).bytes for each in (1, 4)]
    assert ring[0] == ring[1]
    in_two_levels = catalogue.collective_cost("all-gather:per_host=4", 1e6, 0.01, 8, on_each=4)
    assert in_two_levels.bytes == pytest.approx(catalogue.collective_cost("all-gather", 1e6, 0.01, 2).bytes)
    assert in_two_levels.local_seconds > 0


def test_workers_of_several_processes_choose_in_one_level_and_in_two() -> None:
    names = ("all-gather", "spardl")
    assert catalogue.choices(names, 2, 4) == (*names, "all-gather:per_host=4", "spardl:per_host=4")
    assert catalogue.choices(names, 8, 1) == catalogue.choices(names, 1, 8) == names
