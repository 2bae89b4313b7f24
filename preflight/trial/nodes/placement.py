"""Find this node's position in the job from the variables of schedulers and launchers.

The command-line options --nnodes, --node-rank and --rdzv-endpoint take precedence over the environment.
"""
# Only the variables of the innermost launcher are read, because the values of two launchers don't fit together. Slurm
# counts only inside a step: a shell or a batch script is one node.

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from preflight.errors import UsageError
from preflight.model.launchers import LAUNCHERS, NodeVariables
from preflight.model.placement import Origin, Placement, endpoint_text, start_line
from preflight.trial.nodes.hostlist import expand_hosts

MOST_NODES = 16384
DEFAULT_PORT = 29400  # torchrun's own for c10d
# Below the ports that Linux gives out by itself; by job, so that two jobs on a host do not meet each other.
SLURM_PORTS, SLURM_PORT_COUNT, SLURM_TRIES = 15000, 15000, 3
FIRST_SPECIAL_STEP = 0xFFFF_FFF0  # SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP, ...: slurm.h
STEP_ID = re.compile(r"\d{1,18}", re.ASCII)  # of a job or a step: Slurm's own have 32 bits
ENDPOINT = re.compile(r"\[([^\[\]\s]+)\](?::(\d{1,5}))?|([^\[\]:\s]+)(?::(\d{1,5}))?", re.ASCII)
ADVICE = "give --nnodes N --node-rank R --rdzv-endpoint HOST:PORT"
LOOPBACK_NAMES = re.compile(r"localhost(\..*)?|127\.[\d.]+|::1", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """The command-line options that give this node's position. None means that an option was not given."""

    nnodes: int | None = None
    node_rank: int | None = None
    endpoint: str | None = None
    run_id: str | None = None


@dataclass(slots=True)
class _Found:
    """The values of the placement that were found so far.

    The first value that is found for a field is kept.
    """

    environ: Mapping[str, str]
    values: dict[str, int | str] = field(default_factory=dict)
    origins: list[Origin] = field(default_factory=list)

    def note(self, what: str, value: int | str, source: str) -> None:
        if what not in self.values:
            self.values[what] = value
            self.origins.append(Origin(what, str(value), source))

    def note_number(self, what: str, *names: str) -> None:
        """Record an integer from the first of these variables that is set.

        Raise UsageError if the value is not an integer.
        """
        for name in names:
            if text := self.environ.get(name):
                self.note(what, parse_whole(name, text), name)

    def number(self, what: str) -> int | None:
        value = self.values.get(what)
        return value if isinstance(value, int) else None


def find_placement(asked: Asked, environ: Mapping[str, str]) -> Placement:
    """Return this node's position in the job, from the command-line options and the environment.

    Raise UsageError if a value is missing, or if sources contradict each other.
    """
    found = _Found(environ)
    hosts: tuple[str, ...] = ()
    for what, value, option in (
        ("nodes", asked.nnodes, "--nnodes"),
        ("node rank", asked.node_rank, "--node-rank"),
        ("meeting point", asked.endpoint, "--rdzv-endpoint"),
    ):
        if value is not None:
            found.note(what, value, option)
    if asked.nnodes is None or asked.nnodes > 1:
        hosts = _from_environment(found)
    nodes = found.number("nodes")
    if nodes is None:
        if found.values.keys() & {"node rank", "meeting point"} and (asked.endpoint or asked.node_rank is not None):
            raise UsageError(f"how many nodes? --nnodes is missing: {ADVICE}")
        nodes = 1
    if nodes == 1 and not (asked.node_rank or 0):
        return Placement(1, 0, "", (), "", (), tuple(found.origins) if "one node" in found.values else ())
    return _several(found, nodes, hosts, asked.run_id)


def _from_environment(found: _Found) -> tuple[str, ...]:
    """Record the values in the variables of the innermost launcher that is present.

    Return the hosts if the launcher names them. Otherwise return ().
    """
    environ = found.environ
    for launcher in reversed(LAUNCHERS):
        said = launcher.node
        if launcher.name == "slurm" and _slurm_nodes(environ):
            return _from_slurm(found)
        if said is not None and any(map(environ.get, said.shown_by)) and said.unless not in environ:
            if said.processes:
                _one_per_node(found, said)
            else:
                found.note_number("nodes", said.nodes)
            found.note_number("node rank", *said.node_rank)
            if point := environ.get(said.endpoint):
                found.note("meeting point", point, said.endpoint)
            for address, port in said.meeting:
                _master(found, address, port)
            break
    return ()


def _one_per_node(found: _Found, said: NodeVariables) -> None:
    """Record the number of nodes from a launcher that counts processes.

    Raise UsageError if a node has several processes.
    """
    count, here = (parse_whole(name, found.environ.get(name) or "1") for name in (said.processes, said.processes_here))
    nodes = parse_whole(said.nodes, found.environ[said.nodes]) if said.nodes else 1 if count == here else count
    if nodes > 1 and (count != nodes or here > 1):
        others = f"{here} on this node" if said.processes_here else f"on {nodes} nodes"
        raise UsageError(
            f"{said.processes} says {count} processes, {others}; preflight is started once per node: {said.once}"
        )
    found.note("nodes", nodes, said.nodes or said.processes)


def _master(found: _Found, address: str, port: str) -> None:
    host = found.environ.get(address)
    if not host:
        return
    number = parse_whole(port, found.environ.get(port) or str(DEFAULT_PORT))
    source = f"{address}, {port}" if found.environ.get(port) else f"{address}; {port} is not set"
    found.note("meeting point", endpoint_text(host, number), source)


def _slurm_nodes(environ: Mapping[str, str]) -> str:
    """Return the number of nodes from Slurm's variables, or "" outside of Slurm."""
    names = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES")
    return next(filter(None, map(environ.get, names)), "")


def _from_slurm(found: _Found) -> tuple[str, ...]:
    environ = found.environ
    step = environ.get("SLURM_STEP_ID", "")
    if not STEP_ID.fullmatch(step) or int(step) >= FIRST_SPECIAL_STEP or "SLURM_NODEID" not in environ:
        count = _slurm_nodes(environ)
        if count != "1" and "nodes" not in found.values:
            words = f"{count} nodes are allocated, but this is no step of srun: start it with srun --ntasks-per-node=1"
            found.note("one node", words, "SLURM_STEP_ID")
        return ()
    found.note_number("nodes", "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    found.note_number("node rank", "SLURM_NODEID")
    nodes = found.number("nodes") or 1
    text = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS") or str(nodes)
    tasks = parse_whole("SLURM_NTASKS", text)
    is_own_step = tasks == 1 and step_nodes(environ)[0] == 1  # `check --on slurm: --together` starts one for each node
    if nodes == 1 or is_own_step:
        return ()
    if tasks != nodes:
        once = "preflight is started once per node: srun --ntasks-per-node=1"
        raise UsageError(f"srun starts {tasks} tasks on {nodes} nodes; {once}")
    host = environ.get("MASTER_ADDR", "")
    if host and not LOOPBACK_NAMES.fullmatch(host):
        _master(found, "MASTER_ADDR", "MASTER_PORT")
    listed = next((n for n in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST") if environ.get(n)), "")
    if not listed:
        return ()
    hosts = expand_hosts(environ[listed])
    found.note("meeting point", hosts[0], f"the first host of {listed}")
    return hosts if len(hosts) == nodes else ()


def _several(found: _Found, nodes: int, hosts: tuple[str, ...], run_id: str | None) -> Placement:
    rank = found.number("node rank")
    point = found.values.get("meeting point")
    if not 1 <= nodes <= MOST_NODES:
        raise UsageError(f"{_said(found, 'nodes')}: give 1 to {MOST_NODES} nodes")
    if rank is None:
        raise UsageError(f"{_said(found, 'nodes')}, but which of them is this? {_lines(nodes, point)}")
    if not 0 <= rank < nodes:
        ranks = f"node ranks go from 0 to {nodes - 1}"
        raise UsageError(f"{_said(found, 'node rank')}, but {_said(found, 'nodes')}: {ranks}")
    if not isinstance(point, str) or not point:
        raise UsageError(f"{_said(found, 'nodes')}, but what is their rendezvous endpoint? {_lines(nodes, point)}")
    host, port = parse_endpoint(point, _source(found, "meeting point"))
    slurm = found.environ.get("SLURM_JOB_ID", "") if _slurm_nodes(found.environ) else ""
    step = found.environ.get("SLURM_STEP_ID", "")
    ports = (port,) if port else slurm_ports(slurm, step) if slurm else (DEFAULT_PORT,)
    if not port:
        from_job = f"from SLURM_JOB_ID {slurm}" if slurm else "preflight's default"
        found.note("port", ", ".join(map(str, ports)), from_job)
    derived = f"slurm-{slurm}.{step}" if slurm else f"{nodes} nodes at {point}"
    if run_id:
        found.note("run id", run_id, "--rdzv-id")
    named = run_id or found.environ.get("PET_RDZV_ID") or derived
    return Placement(nodes, rank, host, ports, named, hosts, tuple(found.origins))


def _lines(nodes: int, point: object) -> str:
    """Return a text with the commands to type on the first node and on the last node."""
    place = str(point or f"HOST:{DEFAULT_PORT}")
    first, last = (f"`{start_line(nodes, rank, place)}`" for rank in (0, nodes - 1))
    return f"on HOST {first}, on the {'other' if nodes == 2 else 'last'} node {last}"


def slurm_ports(job_id: str, step_id: str) -> tuple[int, ...]:
    """Return the ports at which all nodes of a Slurm step try to join, in the order of their tries.

    The same `job_id` and `step_id` give the same ports.
    """
    is_numbered = STEP_ID.fullmatch(job_id) and (not step_id or STEP_ID.fullmatch(step_id))
    seed = int(job_id) * 31 + int(step_id or 0) if is_numbered else 0
    first = SLURM_PORTS + seed * SLURM_TRIES % (SLURM_PORT_COUNT - SLURM_TRIES)
    return tuple(range(first, first + SLURM_TRIES))


def step_nodes(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of nodes in this Slurm step and the number of this node.

    Outside of Slurm, the result is (1, 0).
    """
    try:
        count, number = (parse_whole(name, environ.get(name, "")) for name in ("SLURM_STEP_NUM_NODES", "SLURM_NODEID"))
    except UsageError:
        return 1, 0
    return count, number


def parse_endpoint(text: str, source: str) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`, `HOST` or `[IPV6]:PORT`. The port is 0 if `text` has no port.

    Raise UsageError for any other form.
    """
    # The error names `source`.
    match = ENDPOINT.fullmatch(text)
    if match is None:
        raise UsageError(f"{source} {text[:80]!r}: write HOST:PORT, or [ADDRESS]:PORT for IPv6")
    port = int(match[2] or match[4] or 0)
    if (match[2] or match[4]) and not 1 <= port <= 65535:
        raise UsageError(f"{source} {text[:80]!r}: ports go from 1 to 65535")
    return match[1] or match[3], port


def parse_whole(name: str, text: str) -> int:
    """Return the integer in `text`, the value of the variable `name`. Raise UsageError if `text` is no integer."""
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        hint = "; an elastic range has no fixed place, give --nnodes" if name == "PET_NNODES" else ""
        raise UsageError(f"{name}={text[:40]!r} is no whole number{hint}")
    return int(text)


def _source(found: _Found, what: str) -> str:
    return next(origin.source for origin in found.origins if origin.what == what)


def _said(found: _Found, what: str) -> str:
    return f"{_source(found, what)} says {what} {found.values[what]}"
