"""Use the current Slurm job for `--on slurm:`, or get a new job with `salloc`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from preflight.errors import LaunchError, UsageError
from preflight.system.crew import Crew
from preflight.trial.nodes.hostlist import expand_hosts

# The job lives until a line comes on stdin. If stdin ends, preflight was killed; the nodes have 5 s to clean up. Then
# SIGHUP has salloc give the job back, or withdraw its request (salloc(1)). The kernel ends this shell with preflight;
# what the shell has started goes on.
HOLD = """
exec 3<&0
salloc "$@" sh -c 'printf "{\\"job\\": \\"%s\\", \\"nodes\\": \\"%s\\"}\\n" "$SLURM_JOB_ID" "$SLURM_JOB_NODELIST"
exec >/dev/null 2>&1; while kill -0 $PPID; do sleep 1; done' </dev/null &
salloc=$!
{ read -r word <&3 || sleep 5; kill -HUP $salloc; } >/dev/null 2>&1 &
watch=$!
wait $salloc
code=$?
kill $watch
exit $code
"""
GIVES_BACK_S = 10.0
STDERR = 2


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A Slurm job: its number, the hosts that run preflight, and the options for srun."""

    number: str
    hosts: Sequence[str]
    step_options: Sequence[str] = ()


@contextlib.contextmanager
def slurm_job(named: str, options: Sequence[str], environ: Mapping[str, str]) -> Iterator[SlurmJob]:
    """Yield a Slurm job that has the nodes in `named`, a list of host names or a number of nodes.

    Inside a Slurm job, the current job is used. Outside, a new job is requested, and is given back at the end. Raise
    LaunchError if Slurm gives no new job.
    """
    # Inside a Slurm job, the current job is used. Outside, `salloc` gets the new job. `options` are options of srun
    # inside a job, and options of salloc outside.
    if number := environ.get("SLURM_JOB_ID"):
        hosts = expand_hosts(environ.get("SLURM_JOB_NODELIST", ""))
        yield SlurmJob(number, _chosen(named, hosts, number), options)
        return
    wanted = (f"--nodes={named}",) if named.isdecimal() else _by_name(expand_hosts(named))
    command = ("sh", "-c", HOLD, "sh", "--job-name=preflight", *wanted, *options)
    with Crew[str](leave_s=GIVES_BACK_S) as crew:
        crew.start("salloc", command, environ, math.inf, STDERR)  # what it says is for who waits in the queue
        child = crew.children["salloc"]
        try:
            while True:
                for _, message, lost in crew.listen():
                    match message:
                        case {"job": str() as number, "nodes": str() as nodes}:
                            yield SlurmJob(number, expand_hosts(nodes))
                            return
                        case _ if lost is not None:
                            raise LaunchError(f"--on slurm:{named}: salloc gave no nodes (exit code {child.exitcode})")
                        case _:
                            pass
        finally:
            with contextlib.suppress(KeyError, OSError):  # it is gone
                crew.ask("salloc", "give back")


def _by_name(hosts: Sequence[str]) -> tuple[str, ...]:
    return f"--nodes={len(hosts)}", f"--nodelist={','.join(hosts)}"


def _chosen(named: str, hosts: Sequence[str], number: str) -> Sequence[str]:
    """Return the hosts of the Slurm job that `named` selects.

    `named` is a list of host names or a number of hosts. Raise UsageError if the Slurm job lacks these hosts.
    """
    if named.isdecimal():
        if not 0 < int(named) <= len(hosts):
            raise UsageError(f"--on slurm:{named}: job {number}, in which this runs, has {len(hosts)} nodes")
        return hosts[: int(named)]
    wanted = tuple(dict.fromkeys(expand_hosts(named)))
    if foreign := [host for host in wanted if host not in hosts]:
        raise UsageError(f"--on slurm:{named}: {foreign[0]} is no node of job {number}, in which this runs")
    return wanted
