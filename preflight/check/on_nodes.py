"""Run preflight on the nodes of `--on` through ssh or srun, and collect one report per node.

preflight must be installed at the same path on every node.
"""
# The remote preflight writes its report to stdout. The remote preflight stops and cleans up if its stdin closes.

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from preflight.check.option_kinds import ANSWERS_BACK
from preflight.check.request import HOSTS, Request
from preflight.check.slurm_job import slurm_job
from preflight.errors import UsageError
from preflight.model.input_limits import InputLimit
from preflight.model.placement import endpoint_text
from preflight.system.child import Json
from preflight.system.crew import Crew, Lost
from preflight.system.own_command import own_argv
from preflight.system.own_inputs import read_own_input
from preflight.trial.nodes.hostlist import expand_hosts
from preflight.trial.nodes.placement import DEFAULT_PORT, parse_endpoint

# No password is asked for, no X11 and no agent is forwarded; a host key that is unknown stays the site's decision.
SSH = ("ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "--")
# One step for each node, which takes nothing away from the job's other steps. The kernel ends the shell with preflight,
# and srun passes the end of stdin on; a srun that is killed has its task killed, which then can't clean up.
SRUN = (
    "sh", "-c", 'srun "$@"; exit $?', "srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--mpi=none",
)  # fmt: skip
NO_WAY, NOT_FOUND = 255, 127  # ssh(1), and srun by SLURM_EXIT_ERROR; sh(1)
CHATTER = re.compile(r"Exited with exit code|Try .srun --help")  # srun's last line, after the one that says why
HOSTS_FILE = InputLimit("hosts file", 1 << 20, 0, 0)
# What begins with a dash would be an option of ssh.
HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.:-]*", re.ASCII)
AT_ONCE = 256
LOGIN_S = 30.0  # for login, start and the way back, in addition to the check's own time
GOODBYE_S = 5.0  # for a node that has reported, to go
MOST_ERROR_BYTES = 4096


ArgumentsOf = Callable[[int, Sequence[str]], Sequence[str]]  # of a node, by its place among the hosts


@dataclass(frozen=True, slots=True)
class NodeCommands:
    """The commands that run preflight on the nodes: one command for each host.

    After the stdin of a command is closed, the command must end within `leave_s` seconds.
    """

    commands: Mapping[str, Sequence[str]]
    leave_s: float
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def check_there(request: Request, run_id: str) -> ArgumentsOf:
    """Return a function that gives the preflight arguments for one host.

    The function takes the position of the host and the list of hosts.
    """
    # With the arguments, preflight checks the host alone. With --together, preflight joins the run `run_id`.
    there = replace(
        request, on=ANSWERS_BACK, together=False, slurm_args=None, nnodes=1, json=None, verbose=False, quiet=False,
        report=Request().report, env_out=Request().env_out, also=None, shadow=False,
    )  # fmt: skip

    def alone(_place: int, _hosts: Sequence[str]) -> Sequence[str]:
        return ["check", *there.arguments()]

    def together(place: int, hosts: Sequence[str]) -> Sequence[str]:
        if len(hosts) > AT_ONCE:
            raise UsageError(f"--together: at most {AT_ONCE} nodes, and these are {len(hosts)}; start them by srun")
        host, port = hosts[0].rpartition("@")[2], DEFAULT_PORT
        if request.rdzv_endpoint is not None:
            host, port = parse_endpoint(request.rdzv_endpoint, "--rdzv-endpoint")
        endpoint = endpoint_text(host, port or DEFAULT_PORT)
        own = replace(there, nnodes=len(hosts), node_rank=place, rdzv_endpoint=endpoint, rdzv_id=run_id)
        return ["check", *own.arguments()]

    return together if request.together else alone


@contextlib.contextmanager
def way_to(
    on: str, arguments_of: ArgumentsOf, environ: Mapping[str, str], slurm_options: Sequence[str] = ()
) -> Iterator[NodeCommands]:
    """Yield the commands that run this preflight on the nodes named in `on`, the value of `--on`.

    `arguments_of` gives the arguments for each node. Raise UsageError if `on` or the arguments are invalid.
    """
    kind, _, named = on.partition(":")

    def commands_on(hosts: Sequence[str]) -> Iterator[tuple[str, str]]:
        for place, host in enumerate(hosts):
            yield host, shlex.join(own_argv(*arguments_of(place, hosts)))

    match kind:
        case "ssh" if named:
            yield NodeCommands({host: (*SSH, host, it) for host, it in commands_on(_hosts_in(named))}, 1.0, environ)
        case "slurm" if named:
            with slurm_job(named, slurm_options, environ) as job:
                step = (*SRUN, f"--jobid={job.number}", *job.step_options)
                commands = {
                    host: (*step, f"--nodelist={host}", "sh", "-c", f"exec {command}")
                    for host, command in commands_on(job.hosts)
                }
                yield NodeCommands(commands, 5.0, {**environ, "SLURM_EXIT_ERROR": str(NO_WAY)})
        case _:
            raise UsageError(f"--on {on}: write {HOSTS}")


def _hosts_in(named: str) -> tuple[str, ...]:
    if named.startswith("@"):
        lines = read_own_input(named[1:], HOSTS_FILE).splitlines()
        words = [word for line in lines for word in line.partition("#")[0].split()]
        if not words:
            raise UsageError(f"{named[1:]}: no host; write {HOSTS}")
        named = ",".join(words)
    hosts = tuple(dict.fromkeys(expand_hosts(named)))
    for host in hosts:
        if HOST.fullmatch(host) is None:
            raise UsageError(f"--on: {host[:80]!r} is no host name that is safe to pass to ssh; write {HOSTS}")
    return hosts


def visit(
    way: NodeCommands, limit_s: float, take: Callable[[str, Json], None], watch: Callable[[Sequence[str], int], None]
) -> dict[str, str]:
    """Run the commands of `way` (NodeCommands), and return {host: reason} for the nodes that sent no report.

    Each node has at most `limit_s` seconds. `take` is called with each report as soon as the report arrives.
    """
    # About once a second, `watch` gets the nodes at work and the number of nodes that are not started. At the end, and
    # after Ctrl-C, every connection is closed, and preflight then ends on every node.
    waiting, problems, reported, started = list(way.commands), dict[str, str](), set[str](), set[str]()
    with contextlib.ExitStack() as opened, Crew[str](leave_s=way.leave_s) as crew:
        children, errors = {}, {}
        while crew.children or waiting:
            while waiting and len(crew.children) < AT_ONCE:
                host = waiting.pop(0)
                errors[host] = opened.enter_context(open(os.memfd_create("stderr"), "w+b"))
                try:
                    crew.start(host, way.commands[host], way.environ, limit_s, errors[host].fileno())
                    children[host] = crew.children[host]
                except OSError as error:
                    problems[host] = f"{way.commands[host][0]} could not be started: {error.strerror}"
            for host, message, lost in crew.listen(1.0):
                match message:
                    case {"report": dict() as report} if host not in reported:
                        reported.add(host)
                        take(host, report)
                        crew.expect(host, GOODBYE_S)  # it is not waited for
                    case {"started": True}:
                        started.add(host)
                    case _:
                        pass
                if lost is None or host in reported:
                    continue
                with errors.pop(host) as file:
                    said = os.pread(
                        file.fileno(), MOST_ERROR_BYTES, max(0, os.fstat(file.fileno()).st_size - MOST_ERROR_BYTES)
                    )
                words = [
                    line for line in said.decode(errors="replace").strip().splitlines() if not CHATTER.search(line)
                ]
                code = children.pop(host).exitcode
                problems[host] = _why(lost, code, words[-1] if words else "", limit_s, has_started=host in started)
            watch(tuple(crew.children.keys() - reported), len(waiting))
    return problems


def _why(lost: Lost, code: int | None, last: str, limit_s: float, *, has_started: bool) -> str:
    """Return why a node sent no report, from the exit status of its command and the last line of its stderr."""
    words = f": {last}" if last else ""
    match lost:
        case Lost.LATE if has_started:
            return f"silent: preflight started there, but no report came within {limit_s:.0f} s"
        case Lost.LATE:
            return f"silent: nothing came within {limit_s:.0f} s, not even that preflight started{words}"
        case Lost.GARBLED:
            return "the answer is not a report; check whether its login shell prints text"
        case Lost.DIED if code == NO_WAY:
            return f"{'the connection was lost' if has_started else 'unreachable'}{words}"
        case Lost.DIED if code == NOT_FOUND:
            return f"preflight is not there{words}; install it at the same path as here, {sys.executable}"
        case Lost.DIED:
            return f"no report, exit code {code}{words}"
