"""A node's place, as Slurm, Kubernetes, torchrun's variables or the options say it, and what does not fit together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.model.placement import start_of
from preflight.trial.nodes.placement import Asked, find_placement, step_nodes

STEP = {
    "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NNODES": "3", "SLURM_NODEID": "1", "SLURM_NTASKS": "3",
    "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_NUM_NODES": "3",
}  # fmt: skip
KUBEFLOW = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "job-0.svc", "PET_MASTER_PORT": "29500"}
OPTIONS = Asked(2, 0, "10.0.0.1:29400")


OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_ADDR": "n1",
}  # fmt: skip
HYDRA = {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALNRANKS": "1", "MPI_LOCALRANKID": "0", "MASTER_ADDR": "n1"}
FLUX = {
    "FLUX_JOB_ID": "f1", "FLUX_JOB_NNODES": "2", "FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "1", "PMI_RANK": "1",
    "PMI_SIZE": "2", "MASTER_ADDR": "n1",
}  # fmt: skip


def told(asked: Asked, environ: dict[str, str]) -> str:
    with pytest.raises(UsageError) as caught:
        find_placement(asked, environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "²", "9" * 5000, "-1", "2x"])
def test_a_step_that_does_not_say_its_nodes_is_one_node(text: str) -> None:
    assert step_nodes(STEP) == (3, 1)
    assert step_nodes(STEP | {"SLURM_STEP_NUM_NODES": text}) == step_nodes(STEP | {"SLURM_NODEID": text}) == (1, 0)


def test_a_step_whose_number_no_slurm_has_is_none() -> None:
    assert find_placement(Asked(), STEP | {"SLURM_STEP_ID": "9" * 5000}).nodes == 1


def test_steps_of_one_node_each_are_told_their_place() -> None:
    """By `check --on slurm: --together`; to type more commands on the nodes helps nobody then."""
    of_one = STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_NTASKS": "1"}
    place = find_placement(Asked(3, 2, "n1:29400", "on-1"), of_one)
    assert (place.nodes, place.node_rank, place.host, start_of(place, 1)) == (3, 2, "n1", "")
    assert "srun starts 8 tasks on 2 nodes" in told(Asked(2, 0, "n1:29400"), STEP | {"SLURM_NTASKS": "8"})


def test_without_a_word_there_is_one_node() -> None:
    place = find_placement(Asked(), {})
    assert (place.nodes, place.node_rank, place.origins) == (1, 0, ())


def test_a_slurm_step_meets_at_its_first_host() -> None:
    place = find_placement(Asked(), STEP)
    assert (place.nodes, place.node_rank, place.host) == (3, 1, "n1")
    assert place.hosts == ("n1", "n2", "n3")
    assert place.name_of(2) == "n3 (node 2)"
    assert {origin.what: origin.source for origin in place.origins} == {
        "nodes": "SLURM_STEP_NUM_NODES", "node rank": "SLURM_NODEID", "port": "from SLURM_JOB_ID 4711",
        "meeting point": "the first host of SLURM_STEP_NODELIST",
    }  # fmt: skip


def test_every_node_of_a_step_tries_the_same_ports_and_other_steps_others() -> None:
    ports = {find_placement(Asked(), STEP | {"SLURM_NODEID": str(node)}).ports for node in range(3)}
    assert len(ports) == 1
    assert find_placement(Asked(), STEP | {"SLURM_STEP_ID": "1"}).ports not in ports
    assert all(1024 < port < 32768 for port in ports.pop())


@pytest.mark.parametrize("left_out", ["SLURM_STEP_ID", "SLURM_NODEID"])
def test_an_allocation_without_a_step_is_one_node_and_says_so(left_out: str) -> None:
    place = find_placement(Asked(), {name: value for name, value in STEP.items() if name != left_out})
    assert place.nodes == 1
    (origin,) = place.origins
    assert "srun --ntasks-per-node=1" in origin.value


def test_the_shell_of_salloc_is_one_node() -> None:
    assert find_placement(Asked(), STEP | {"SLURM_STEP_ID": "4294967290"}).nodes == 1


def test_several_tasks_on_a_node_are_refused() -> None:
    assert "once per node" in told(Asked(), STEP | {"SLURM_NTASKS": "24"})


def test_in_a_step_an_address_that_the_user_chose_is_the_meeting_point_unless_it_is_loopback() -> None:
    chosen = find_placement(Asked(), STEP | {"MASTER_ADDR": "ib-n1", "MASTER_PORT": "29500"})
    assert (chosen.host, chosen.ports) == ("ib-n1", (29500,))
    assert find_placement(Asked(), STEP | {"MASTER_ADDR": "localhost"}).host == "n1"


def test_kubeflow_says_it_all() -> None:
    place = find_placement(Asked(), KUBEFLOW)
    assert (place.nodes, place.node_rank, place.host, place.ports) == (2, 1, "job-0.svc", (29500,))


def test_an_indexed_job_gives_the_rank_where_nobody_else_does() -> None:
    environ = {"WORLD_SIZE": "4", "JOB_COMPLETION_INDEX": "3", "MASTER_ADDR": "fd00::1"}
    place = find_placement(Asked(), environ)
    assert (place.nodes, place.node_rank, place.host, place.ports) == (4, 3, "fd00::1", (29400,))


def test_inside_a_torchrun_worker_the_variables_count_ranks_and_not_nodes() -> None:
    environ = {"WORLD_SIZE": "8", "RANK": "3", "LOCAL_RANK": "3", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    assert find_placement(Asked(), environ).nodes == 1


def test_options_come_before_every_variable() -> None:
    place = find_placement(OPTIONS, STEP | KUBEFLOW)
    assert (place.nodes, place.node_rank, place.host, place.ports) == (2, 0, "10.0.0.1", (29400,))
    assert find_placement(Asked(nnodes=1), STEP).nodes == 1


def test_what_the_options_leave_open_the_environment_says() -> None:
    place = find_placement(Asked(endpoint="n1:29999"), STEP)
    assert (place.nodes, place.node_rank, place.ports) == (3, 1, (29999,))


WRONG = [
    (Asked(2, 2, "h:1"), {}, "node ranks go from 0 to 1"),
    (Asked(2, 0), {}, "what is their rendezvous endpoint"),
    (Asked(2, None, "h:1"), {}, "which of them is this"),
    (Asked(None, 0, "h:1"), {}, "--nnodes is missing"),
    (Asked(1, 1), {}, "node ranks go from 0 to 0"),
    (Asked(99999, 0, "h:1"), {}, "give 1 to"),
    (Asked(2, 0, "h:99999"), {}, "ports go from"),
    (Asked(2, 0, "a b"), {}, "write HOST:PORT"),
    (Asked(), {"PET_NNODES": "1:4"}, "elastic range"),
    (Asked(), KUBEFLOW | {"PET_NODE_RANK": "x"}, "no whole number"),
    (Asked(), STEP | {"SLURM_NODEID": "7"}, "node ranks go from 0 to 2"),
    (Asked(), STEP | {"SLURM_STEP_NODELIST": "n[1-"}, "no list of hosts"),
]


@pytest.mark.parametrize(("asked", "environ", "words"), WRONG)
def test_what_does_not_fit_together_is_one_clear_line(asked: Asked, environ: dict[str, str], words: str) -> None:
    assert words in told(asked, environ)


NAMES = sorted(
    {*STEP, *KUBEFLOW, "WORLD_SIZE", "RANK", "LOCAL_RANK", "JOB_COMPLETION_INDEX", "MASTER_ADDR", "MASTER_PORT"}
)
VALUES = st.sampled_from(["", "0", "1", "2", "3", "n[1-3]", "h", "::1", "-1", "x" * 50, "1:2", "n[", "٣"]) | st.text(
    max_size=8
)


@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES),
    st.none() | st.integers(-2, 5), st.none() | st.integers(-2, 5), st.none() | VALUES,
)  # fmt: skip
def test_any_environment_is_a_place_or_a_usage_error(
    environ: dict[str, str], nnodes: int | None, node_rank: int | None, endpoint: str | None
) -> None:
    try:
        place = find_placement(Asked(nnodes, node_rank, endpoint), environ)
    except UsageError as error:
        assert str(error)
    else:
        assert 0 <= place.node_rank < place.nodes
        assert place.nodes == 1 or (place.host and all(0 < port < 65536 for port in place.ports))


@pytest.mark.parametrize("environ", [OPEN_MPI, HYDRA, FLUX, STEP | OPEN_MPI, STEP | FLUX])
def test_mpirun_mpiexec_and_flux_say_a_nodes_place_if_they_start_one_process_per_node(environ: dict[str, str]) -> None:
    place = find_placement(Asked(), environ)
    assert (place.nodes, place.node_rank, place.host) == (2, 1, "n1")
    named = find_placement(Asked(endpoint="n7:29400"), {key: environ[key] for key in environ if key != "MASTER_ADDR"})
    assert (named.nodes, named.node_rank, named.host, named.ports) == (2, 1, "n7", (29400,))


@pytest.mark.parametrize(("environ", "more", "once"), [
    (OPEN_MPI, {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, "mpirun --map-by ppr:1:node"),
    (HYDRA, {"PMI_SIZE": "16", "MPI_LOCALNRANKS": "8"}, "mpiexec -ppn 1"),
    (FLUX, {"FLUX_JOB_SIZE": "16"}, "flux run --nodes N --tasks-per-node 1"),
])  # fmt: skip
def test_several_processes_per_node_are_refused_with_the_line_that_starts_one(
    environ: dict[str, str], more: dict[str, str], once: str
) -> None:
    assert told(Asked(), environ | more).endswith(f"preflight is started once per node: {once}")


@pytest.mark.parametrize("environ", [
    {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
    {"PMI_SIZE": "8", "PMI_RANK": "3", "MPI_LOCALNRANKS": "8"}, {"PMI_SIZE": "2", "PMI_RANK": "1"},
    FLUX | {"FLUX_JOB_NNODES": "1", "FLUX_JOB_SIZE": "8"},
])  # fmt: skip
def test_the_processes_of_one_node_are_one_node(environ: dict[str, str]) -> None:
    assert find_placement(Asked(nnodes=None), environ | {"MASTER_ADDR": "n1"}).nodes == 1


def test_of_mpirun_without_an_address_the_whole_lines_are_said() -> None:
    said = told(Asked(), {name: value for name, value in OPEN_MPI.items() if name != "MASTER_ADDR"})
    assert "rendezvous endpoint" in said and "--rdzv-endpoint HOST:29400" in said


@pytest.mark.parametrize("environ", [OPEN_MPI, HYDRA, FLUX])
@given(data=st.data())
def test_whatever_these_variables_hold_it_is_a_place_or_a_usage_error(
    environ: dict[str, str], data: st.DataObject
) -> None:
    values = st.text(max_size=12) | st.integers(-2, 10**10).map(str)
    drawn = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(environ, values)))
    try:
        place = find_placement(Asked(), environ | drawn)
    except UsageError as error:
        assert "\n" not in str(error).strip()
    else:
        assert 0 <= place.node_rank < place.nodes
