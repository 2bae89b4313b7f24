"""`preflight stuck --on`: collect the evidence about one job from all nodes, and judge the evidence together.

On each node, `answer_back` runs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import typer

from preflight.check.on_nodes import way_to
from preflight.check.option_kinds import ANSWERS_BACK
from preflight.cli.commands import StuckOptions
from preflight.cli.node_lines import say_back, visit_all
from preflight.cli.output import check_outputs
from preflight.cli.stuck import answered, find_jobs, look_here, watch_s
from preflight.errors import MalformedInput, UsageError
from preflight.model.codec import decode, encode
from preflight.model.stuck_evidence import NodeEvidence
from preflight.model.units import counted
from preflight.system.kernel_queries import live_machine
from preflight.system.signals import end_with_stdin

LOOK_S = 60.0  # to find the ranks and to read their stacks, in addition to the watch
NO_RANK = "no rank of the job is there"


def stuck(asked: StuckOptions) -> None:
    """Run `preflight stuck --on`, which judges the evidence of all nodes together.

    If `--on` is ANSWERS_BACK, collect the evidence of this node and send the evidence back.
    """
    # ANSWERS_BACK means that another preflight has started this process.
    if asked.on == ANSWERS_BACK:
        answer_back(asked)
        return
    if asked.of is not None or asked.pid is not None or asked.all_jobs or asked.out or asked.merge:
        raise UsageError(
            "stuck --on: name the job with --job or --user; a PID, --all, --out and --merge concern one node"
        )
    check_outputs(asked.json)
    found: dict[str, NodeEvidence] = {}

    def take(host: str, report: Any) -> str:
        if "evidence" not in report:
            raise MalformedInput("it has no evidence")
        if report["evidence"] is None:
            return NO_RANK
        found[host] = decode(NodeEvidence, report["evidence"])
        return counted(len(found[host].ranks), "rank")

    with way_to(str(asked.on), lambda *_: there(asked), around(asked, os.environ)) as way:
        unseen, stopped = visit_all(way, watch_s(asked) + LOOK_S, take, is_quiet=asked.quiet)
    sizes = Counter[str]()
    for node in found.values():
        sizes[node.job] += len(node.ranks)
    job = max(sizes, key=lambda name: sizes[name], default="")
    unseen |= {
        host: f"its ranks are of {node.job}; name one with --job" for host, node in found.items() if node.job != job
    }
    nodes = tuple(node for node in found.values() if node.job == job)
    not_seen = [f"{host}: {why}" for host, why in unseen.items()]
    raise typer.Exit(answered(asked, nodes, [stopped] if stopped else [], not_seen))


def there(asked: StuckOptions) -> list[str]:
    """Return the arguments of the preflight command that runs on each node and sends the evidence back."""
    given = {"--job": asked.job, "--user": asked.user, "--watch": asked.watch}
    switches = {"--native": asked.native, "--dump": asked.dump, "--ras": asked.ras, "--no-ras": asked.ras is False}
    values = [f"{name}={value}" for name, value in given.items() if value is not None]
    return ["stuck", f"--on={ANSWERS_BACK}", *values, *(name for name, is_on in switches.items() if is_on)]


def around(asked: StuckOptions, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment for srun, changed so that srun runs inside the Slurm job to examine.

    If `--on` does not begin with `slurm:`, the environment is unchanged. Raise UsageError if --job or the nodes' names
    are needed but missing.
    """
    # --job and the names of the nodes are needed outside the Slurm job.
    kind, _, named = str(asked.on).partition(":")
    own = environ.get("SLURM_JOB_ID")
    if kind != "slurm" or (own is not None and asked.job in (None, own)):
        return environ
    if asked.job is None:
        raise UsageError("stuck --on slurm: in which job? Add --job ID, and name its nodes: slurm:node[01-04]")
    if named.isdecimal():
        raise UsageError(f"stuck --on {asked.on}: name the nodes; `squeue -j {asked.job} -o %N` prints them")
    return {**environ, "SLURM_JOB_ID": asked.job, "SLURM_JOB_NODELIST": named}


def answer_back(asked: StuckOptions) -> None:
    """Send this node's evidence about the job as one line.

    The evidence is null if no job fits. Raise UsageError if more than one job fits.
    """
    end_with_stdin()
    say_back({"started": True})
    machine = live_machine()
    found = find_jobs(asked, None, machine)
    if len(found) > 1:
        rows = [(each.name, each.row(machine)) for each in found]
        names = ", ".join(f"{name} ({counted(row.ranks, 'rank')}, PID {row.pid}: {row.command})" for name, row in rows)
        raise UsageError(f"{len(found)} jobs run here; name one with --job: {names}")
    evidence = look_here(asked, found[0], machine, []) if found else None
    say_back({"report": {"evidence": None if evidence is None else encode(evidence)}})
