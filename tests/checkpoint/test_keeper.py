"""Keepers as real processes: what they hold survives the death of one, and a file is whole or not there."""

import hashlib
import json

import grpc
import pytest
import torch
from kit.certificates import Authority
from kit.keepers import Keepers
from trimtab.checkpoint.keeper.contents import Contents, FullError, WrongBytesError
from trimtab.checkpoint.keeper.memory_store import places
from trimtab.checkpoint.manifest import Manifest, finish, prune, read_manifest, saved
from trimtab.checkpoint.settings import CheckpointSettings, MemorySettings
from trimtab.checkpoint.shards import FORMAT, DamagedError, read_part, write_part
from trimtab.checkpoint.state_tree import take_apart
from trimtab.launch.joining.configuration import Configuration
from trimtab_api.errors import UserError
from trimtab_api.keeper.v1 import keeper_pb2, keeper_pb2_grpc
from trimtab_api.trainingjob import load_job_file

#: More than two messages.
LARGE = bytes(range(256)) * 10_000
FOLDER, OLDER = "step-000000000007-00000000", "step-000000000003-00000000"


def save(keepers, folder, num_ranks=4):
    """Write a checkpoint of one rank on each worker, as all of them would; return what rank r keeps."""
    states = [{"held": torch.full((100,), float(rank))} for rank in range(num_ranks)]
    stores = [keepers.store(rank) for rank in range(num_ranks)]
    for rank, store in enumerate(stores):
        write_part(store, folder, f"rank-{rank}", take_apart(states[rank]), lambda _: None)
    shared = {"shared.json": write_part(stores[0], folder, "shared", take_apart({"weights": [1, 2]}), lambda _: None)}
    manifest = Manifest(FORMAT, int(folder[5:17]), num_ranks, "job", "model", (), 0.0, 0)
    finish(stores[0], folder, manifest, shared, lambda seconds: True)
    for store in stores:
        store.close()
    return states


def read(store, folder, num_ranks=4):
    manifest = read_manifest(store, folder)
    assert read_part(store, folder, manifest.parts[-1]) == {"weights": [1, 2]}
    return [read_part(store, folder, part) for part in manifest.parts[:num_ranks]]


def test_checkpoints_survive_one_keeper_and_are_refused_by_name_after_two():
    with Keepers(4) as keepers:
        states = save(keepers, FOLDER)
        keepers.kill(0)
        store = keepers.store(0)
        for state, again in zip(states, read(store, FOLDER), strict=True):
            assert torch.equal(state["held"], again["held"])
        assert [each.folder for each in saved(store)] == [FOLDER]
        keepers.start(0)  # empty, and serves on
        save(keepers, OLDER)
        keepers.kill(2, 3)
        fresh = keepers.store(0)
        with pytest.raises(DamagedError, match=f"{FOLDER}/rank-2.json cannot be read .*not those of workers 2, 3"):
            read(fresh, FOLDER)
        store.close()
        fresh.close()


def test_files_are_listed_replaced_and_removed():
    with Keepers(2) as keepers:
        store, other = keepers.store(0), keepers.store(1)
        for data in (b"first", LARGE, b""):
            store.write("folder/file", data)
            assert other.read("folder/file") == data
        store.write("folder-2/file", b"x")
        assert other.names() == ["folder", "folder-2"]
        assert other.names("folder") == ["file"]
        other.remove("folder")
        assert store.names() == ["folder-2"]
        with pytest.raises(FileNotFoundError):
            store.read("folder/file")
        prune(store, 1)  # no checkpoint is there, and nothing that it might be of is removed
        assert store.names() == ["folder-2"]


def test_a_full_keeper_refuses_in_words_and_keeps_what_it_has():
    with Keepers(2, size="3MB") as keepers:
        store = keepers.store()
        store.write("folder/file", b"kept")
        with pytest.raises(OSError, match=r"worker 0's keeper holds 1.03kB of at most 3MB, and folder/more needs 10MB"):
            store.write("folder/more", bytes(10_000_000))
        store.write("folder/other", LARGE)
        assert store.read("folder/file") == b"kept"


def test_with_one_keeper_left_a_file_has_one_copy_and_that_is_said():
    with Keepers(2) as keepers:
        warnings: list[str] = []
        store = keepers.store(0, warnings)
        keepers.kill(0)
        store.write("folder/file", b"data")
        assert warnings == ["a checkpoint has one copy in memory: only one keeper answers"]
        assert store.read("folder/file") == b"data"
        keepers.kill(1)
        fresh = keepers.store(0)
        with pytest.raises(OSError, match="no keeper answers"):
            fresh.write("folder/file", b"data")
        assert fresh.names() == []
        fresh.remove("folder")


def test_copies_go_to_two_hosts_if_there_are_two():
    with Keepers(3, hosts=["node-a", "node-a", "node-b"]) as keepers:
        keepers.store(0).write("folder/file", b"data")
        keepers.kill(0, 1)
        assert keepers.store(0).read("folder/file") == b"data"


def test_a_keeper_that_hangs_is_passed_over():
    with Keepers(3) as keepers:
        keepers.freeze(1)
        warnings: list[str] = []
        store = keepers.store(0, warnings)
        store.write("folder/file", b"data")
        assert warnings == []
        keepers.kill(0)
        assert keepers.store(0).read("folder/file") == b"data"  # which is the third's copy


def test_only_processes_of_the_job_are_let_in(tmp_path, monkeypatch):
    job = Authority.new().issue(tmp_path / "job")
    another = Authority.new().issue(tmp_path / "another")
    with Keepers(1, certificates=job) as keepers:
        monkeypatch.setenv("TRIMTAB_TLS_DIR", str(job))
        keepers.store().write("folder/file", LARGE)
        assert keepers.store().read("folder/file") == LARGE
        monkeypatch.setenv("TRIMTAB_TLS_DIR", str(another))
        with pytest.raises(OSError, match="no keeper answers"):
            keepers.store().write("folder/file", b"theirs")
        monkeypatch.delenv("TRIMTAB_TLS_DIR")
        with pytest.raises(OSError, match="no keeper that answers has it"):
            keepers.store().read("folder/file")


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [("", ""), ("a", "0"), ("ab", "01"), ("aab", "02"), ("aaa", "01"), ("abab", "01"), ("--", "01")],
)
def test_places_of_copies(hosts, expected):
    answering = [(str(number), host.strip("-")) for number, host in enumerate(hosts)]
    assert places(answering) == [*expected]


def test_calls_without_a_deadline_and_torn_files_are_refused():
    with Keepers(1) as keepers, grpc.insecure_channel(keepers.addresses[0]) as channel:
        stub = keeper_pb2_grpc.KeeperStub(channel)

        def put(*messages, **deadline):
            with pytest.raises(grpc.RpcError) as failed:
                stub.Put(iter([keeper_pb2.PutRequest(**message) for message in messages]), **deadline)
            return failed.value.details()

        head = {"name": "folder/file", "size": 4, "sha256": hashlib.sha256(b"data").digest()}
        assert put(head, {"data": b"data"}) == "the call has no deadline"
        assert put(head, {"data": b"dat"}, timeout=30) == "folder/file has 3 bytes of 4"
        assert put(head, {"data": b"dara"}, timeout=30) == "folder/file is not what was sent: its checksum differs"
        assert put(head, {"data": b"data!"}, timeout=30) == "folder/file has more than the 4 bytes that were announced"
        assert put({**head, "name": "a/b/c"}, timeout=30) == "'a/b/c' is no name; write FOLDER/FILE or FILE"
        assert stub.List(keeper_pb2.ListRequest(folder="folder"), timeout=30).names == []


def test_where_nothing_keeps_copies_a_job_that_asks_for_them_is_refused(tmp_path):
    spec = {"workers": 2, "checkpoint": {"path": "/c", "inMemory": "neighbour"}}
    spec["template"] = {"spec": {"containers": [{"name": "trainer", "command": ["python", "x.py"]}]}}
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "job"}}
    (tmp_path / "job.json").write_text(json.dumps({**head, "spec": spec}))
    with pytest.raises(UserError) as refused:  # as under torchrun, srun and no launcher
        Configuration(job=tmp_path / "job.json").load()
    assert str(refused.value) == (
        "spec.checkpoint.inMemory: 'neighbour': is kept by processes that only `trimtab run` and the operator start;"
        " leave it out here, and name a place by spec.checkpoint.path"
    )
    job = load_job_file(tmp_path / "job.json")
    assert CheckpointSettings.of(job, ("unix:/a", "unix:/b"), 1).memory == MemorySettings(("unix:/a", "unix:/b"), 1)


def test_room_is_given_back_by_whatever_ends():
    contents, digest = Contents(10_000), hashlib.sha256(b"").digest()
    for _ in range(100):
        torn = contents.begin("folder/torn", 5000, digest)
        torn.append(b"x")
        with pytest.raises(FullError):
            contents.begin("folder/other", 5000, digest)
        with pytest.raises(WrongBytesError):
            torn.finish()
        torn.abandon()
        whole = contents.begin("folder/whole", 0, digest)
        whole.finish()
        whole.abandon()
    assert contents.names("folder") == ["whole"]
    contents.remove("folder")
    contents.begin("folder/large", 10_000 - 1024, digest)
