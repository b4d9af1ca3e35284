"""What other launchers tell a process of its place among the ranks."""

import pytest
from trimtab.launch.environment.launchers import (
    Ranks,
    describe_choice,
    first_of_hostlist,
    ranks_of,
    rendezvous_endpoint,
)
from trimtab_api.errors import UserError

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
    "MASTER_ADDR": "node1", "MASTER_PORT": "29501", "TORCHELASTIC_RUN_ID": "none",
}  # fmt: skip
#: As `srun --nodes=2 --ntasks=5 env` prints them on the second node of a batch job, among others.
SRUN = {
    "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "0", "SLURM_NTASKS": "5",
    "SLURM_STEP_NUM_TASKS": "5", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
}  # fmt: skip
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "3912040449",
}  # fmt: skip
MPIEXEC = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MASTER_ADDR": "node1"}


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        (TORCHRUN, Ranks("torchrun", 5, 8, 1)),
        (SRUN, Ranks("srun", 3, 5, 0)),
        (MPIRUN, Ranks("mpirun", 1, 2, 1)),
        (MPIEXEC, Ranks("mpiexec", 2, 3, 0)),
        ({**SRUN, **TORCHRUN}, Ranks("torchrun", 5, 8, 1)),  # an agent of torchrun's on each node
        ({**SRUN, **MPIRUN}, Ranks("mpirun", 1, 2, 1)),  # mpirun starts a daemon on each node by srun
        ({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "5"}, Ranks("srun", 3, 5, 0)),  # srun --mpi=pmi2
        ({**SRUN, **MPIEXEC}, Ranks("mpiexec", 2, 3, 0)),
        ({**SRUN, "RANK": "0", "WORLD_SIZE": "1"}, None),  # independent tasks, each by a torchrun of its own
        ({**SRUN, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Ranks("torchrun", 0, 2, None)),  # by hand
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_NTASKS": "5"}, None),  # the batch script itself
        ({}, None),
    ],
)
def test_the_place_among_the_ranks(environ, ranks):
    assert ranks_of(environ) == ranks


@pytest.mark.parametrize(
    ("environ", "choice"),
    [
        ({}, None),
        ({"WORLD_SIZE": "1", "RANK": "0"}, None),
        (SRUN, "joins 5 ranks of srun (SLURM_STEP_NUM_TASKS=5)"),
        (
            {**SRUN, "WORLD_SIZE": "1"},
            "this process trains alone (WORLD_SIZE=1); ignores SLURM_STEP_NUM_TASKS=5 of srun; to join those ranks, "
            "unset WORLD_SIZE",
        ),
        (
            {**SRUN, **TORCHRUN},
            "joins 8 ranks of torchrun (WORLD_SIZE=8); ignores SLURM_STEP_NUM_TASKS=5 of srun",
        ),
    ],
)
def test_the_choice_of_a_launcher_names_its_source(environ, choice):
    assert describe_choice(environ) == choice


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        (TORCHRUN, ("node1", 29501)),
        (MPIEXEC, ("node1", 29500)),
        ({**SRUN, "MASTER_ADDR": "node9", "MASTER_PORT": "1234"}, ("node9", 1234)),
    ],
)
def test_ranks_meet_where_the_variables_say(environ, where):
    assert rendezvous_endpoint(environ, ranks_of(environ)) == where


@pytest.mark.pattern("srun", works="joins its ranks (tried on Slurm 22.05, one node)")
def test_ranks_meet_on_the_first_node_of_slurms_and_at_a_port_of_the_step():
    host, port = rendezvous_endpoint(SRUN, ranks_of(SRUN))
    _, another = rendezvous_endpoint({**SRUN, "SLURM_STEP_ID": "1"}, ranks_of(SRUN))
    assert host == "node07"
    assert 20000 <= port < 30000
    assert another != port


def test_ranks_of_mpirun_meet_by_themselves_on_one_host_only():
    assert rendezvous_endpoint(MPIRUN, ranks_of(MPIRUN))[0] == "127.0.0.1"
    apart = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    with pytest.raises(UserError, match=r"MASTER_ADDR: is not set, and mpirun does not say .*-x MASTER_ADDR=HOST"):
        rendezvous_endpoint(apart, ranks_of(apart))


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node7", "node7"),
        ("node7,node9", "node7"),
        ("node[07-09,12],gpu1", "node07"),
        ("node[3,5]", "node3"),
        ("rack[1-2]-node", "rack1-node"),
    ],
)
def test_the_first_of_slurms_hosts(nodes, first):
    assert first_of_hostlist(nodes) == first


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"RANK": "1"}, "WORLD_SIZE: is not set although RANK is 1; set it to how many there are"),
        ({"WORLD_SIZE": "2"}, "RANK: is not set although WORLD_SIZE is; set it to this process's rank"),
        (
            {"WORLD_SIZE": "2", "RANK": "2"},
            "RANK: '2': is not one of the 2 ranks that WORLD_SIZE says; number them from 0",
        ),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE: 'two': must be a whole number"),
        ({**TORCHRUN, "LOCAL_RANK": "x"}, "LOCAL_RANK: 'x': must be a whole number"),
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused(environ, said):
    with pytest.raises(UserError) as refused:
        ranks_of(environ)
    assert str(refused.value) == said
