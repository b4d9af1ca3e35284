"""Checkpoints in memory beside a store: all ranks agree on which is written, and go on from the newest whole one."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import torch
from kit.keepers import Keepers
from kit.rank_pool import RankPool
from kit.run_processes import wait_until
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.checkpoint.manifest import MANIFEST, saved
from trimtab.checkpoint.settings import CheckpointSettings, MemorySettings
from trimtab.checkpoint.store import LocalStore
from trimtab.plan.plan import FusionPlan, Plan, dense_plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.checkpoints.tiers import Tier, open_tiers
from trimtab.session.session import Session
from trimtab.transport.group import Group

STEPS = 12


class Script:
    """One rank's script; its keepers are one for each rank."""

    def __init__(self, folder: Path | None, keepers: tuple[str, ...], *, every: int = 1000) -> None:
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(6, 20), nn.Dropout(0.3), nn.Linear(20, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        group, said = Group.connect(), io.StringIO()
        memory = MemorySettings(keepers, group.rank, steps=every)
        settings = CheckpointSettings(folder and str(folder), "job", steps=1000, memory=memory)
        plan = Plan.parse("0.1/all-gather", FusionPlan((0, 2)))
        with contextlib.redirect_stderr(said):
            self.session = Session(
                model, optimizer, group=group, plan=plan, recorder=Recorder(None), checkpoints=settings
            )
        self.began_at, self.said, self.model = int(self.session.steps), said.getvalue(), model
        generator = torch.Generator().manual_seed(1)
        data = TensorDataset(torch.randn(STEPS * 4 * group.size, 6, generator=generator))
        self.batches = iter(self.session.batches(DataLoader(data, batch_size=4, shuffle=True)))

    def train(self, until: int) -> None:
        """Train on until so many steps are taken."""
        while self.session.steps < until:
            (inputs,) = next(self.batches)
            loss = self.model(inputs).square().mean()
            loss.backward()
            self.session.step(loss)

    def weights(self) -> list[Tensor]:
        return [each.detach().clone() for each in self.model.parameters()]


def tiers_of(folder: Path | None, keepers: tuple[str, ...]) -> list[Tier]:
    return open_tiers(
        CheckpointSettings(folder and str(folder), "job", memory=MemorySettings(keepers, 0)), lambda text: None
    )


def wait_for_memory(keepers: tuple[str, ...], step: int) -> None:
    """Return once the checkpoint of this step, and no other, is whole in memory."""
    memory = tiers_of(None, keepers)[0]
    wait_until(lambda: [each.step for each in saved(memory.store)] == [step] and len(memory.store.names()) == 1)
    memory.close()


def trained(rank: int, size: int, folder: Path | None, keepers: tuple[str, ...]) -> list[Tensor]:
    """Keep step 3 in the store, if there is one, and steps 4 and 8 in memory; train to the end."""
    script = Script(folder, keepers, every=4)
    script.train(3)
    if folder is not None:
        script.session.checkpoint()
    for step in (4, 8):
        script.train(step)
        script.train(step + 1)  # it is written when the script asks for the batch of the next step
        if rank == 0:
            wait_for_memory(keepers, step)
        script.session.barrier()
    script.train(STEPS)
    weights = script.weights()
    script.session.close()
    return weights


def resumed(rank: int, size: int, folder: Path | None, keepers: tuple[str, ...]) -> tuple[int, str, list[Tensor]]:
    script = Script(folder, keepers)
    script.train(STEPS)
    answer = script.began_at, script.said, script.weights()
    script.session.close()
    return answer


@pytest.fixture
def keepers():
    with Keepers(3) as started:
        yield started


def test_ranks_go_on_bit_for_bit_from_memory_after_the_loss_of_one_keeper(
    rank_pool: RankPool, keepers: Keepers
) -> None:
    whole = rank_pool.run_in_process_group(3, trained, None, keepers.addresses)
    keepers.kill(0)
    again = rank_pool.run_in_process_group(3, resumed, None, keepers.addresses)
    for weights, (began_at, _, weights_again) in zip(whole, again, strict=True):
        assert began_at == 8
        assert all(map(torch.equal, weights, weights_again))
    assert "going on from the checkpoint of step 8 in the memory of the workers' hosts" in again[0][1]


def test_where_two_neighbours_die_memory_is_refused_by_name_and_the_store_is_used(
    rank_pool: RankPool, keepers: Keepers, tmp_path: Path
) -> None:
    rank_pool.run_in_process_group(3, trained, tmp_path, keepers.addresses)
    assert [each.step for each in saved(LocalStore(tmp_path))] == [3]
    keepers.kill(1, 2)  # rank 1's part is in both, and the manifest in none of them alone
    (began_at, said, _), *_ = rank_pool.run_in_process_group(3, resumed, tmp_path, keepers.addresses)
    assert began_at == 3
    assert "checkpoint refused: step-000000000008-" in said
    assert "/rank-1.json cannot be read (no keeper that answers has it, and not those of workers 1, 2)" in said
    assert tiers_of(None, keepers.addresses)[0].store.names() == []  # what was refused takes no room


def test_what_was_never_finished_in_memory_is_removed_before_training(rank_pool: RankPool, keepers: Keepers) -> None:
    store = keepers.store()
    store.write("step-000000000009-00000000/rank-0-0.safetensors", b"half")
    store.write(f"step-000000000007-00000000/{MANIFEST}", b"torn")
    began_at = [each[0] for each in rank_pool.run_in_process_group(3, resumed, None, keepers.addresses)]
    assert began_at == [0, 0, 0]
    assert store.names() == []


def test_what_a_failed_write_has_left_in_memory_gives_way_to_the_next(tmp_path: Path) -> None:
    model = nn.Linear(100, 100)
    with Keepers(1, size="150kB") as keepers:
        store = keepers.store()
        settings = CheckpointSettings(None, "job", memory=MemorySettings(keepers.addresses, 0, steps=2))
        with contextlib.redirect_stderr(said := io.StringIO()):
            session = Session(
                model,
                torch.optim.SGD(model.parameters(), lr=0.01),
                group=None,
                plan=dense_plan(),
                recorder=Recorder(None),
                checkpoints=settings,
            )
            store.write("step-000000000001-00000000/rank-1-0.safetensors", bytes(110_000))  # of a rank that was late
            batches = iter(session.batches(DataLoader(TensorDataset(torch.ones(20_000, 100)))))

            def is_whole_after_a_step() -> bool:
                (inputs,) = next(batches)
                model(inputs).sum().backward()
                session.step()
                return bool(saved(store))

            wait_until(is_whole_after_a_step)
            session.close()
        assert "checkpoint of step 2: worker 0's keeper holds" in said.getvalue()
        assert [each.step for each in saved(store)] > [2]
        assert len(store.names()) == 1


def test_a_tier_is_due_by_its_own_steps_or_seconds() -> None:
    by_time = Tier(LocalStore(Path()), "", "", "", seconds=10.0, steps=None, keep=1)
    by_steps = Tier(LocalStore(Path()), "", "", "", seconds=10.0, steps=5, keep=1)
    for tier in (by_time, by_steps):
        tier.begin(100.0, 20)
    assert [by_time.is_due(now, 1000) for now in (109.9, 110.0)] == [False, True]
    assert [by_steps.is_due(1e9, step) for step in (24, 25)] == [False, True]
