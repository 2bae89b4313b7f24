"""`preflight run --reuse`: decide whether the report of an earlier check is valid for the job that starts now."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from preflight.check.request import Request
from preflight.cli.output import PROGRAM
from preflight.errors import PreflightError
from preflight.facts.process import reported_environment
from preflight.facts.run import probe_node
from preflight.job.reuse import FACTS, Now, why_not
from preflight.model.facts import Netif
from preflight.model.gap import known_or
from preflight.model.input_limits import REPORT
from preflight.model.saved_report import load_report
from preflight.search.gpus.gpu_set import chosen_gpus, numbered_gpus
from preflight.search.settings.infiniband import SOCKETS
from preflight.show.env_file import render_env
from preflight.system.files import write_atomically
from preflight.system.kernel_queries import live_machine
from preflight.system.own_inputs import read_own_input
from preflight.system.streams import to_stderr
from preflight.trial.nodes.agreement import why_no_agreement
from preflight.trial.nodes.placement import Asked, find_placement

AGREE_S = 20.0  # for all nodes to say whether they hold the same report


def use_again(wanted: Request, most_s: float, environ: Mapping[str, str], *, is_quiet: bool) -> bool:
    """Return whether an earlier report, at most `most_s` seconds old, is valid for this job on all nodes.

    If the report is valid, write its `.env` file.
    """
    path = wanted.report
    asked = Asked(wanted.nnodes, wanted.node_rank, wanted.rdzv_endpoint, wanted.rdzv_id)
    place = find_placement(asked, os.environ)
    report, reason = None, "is not there"
    netifs: tuple[Netif, ...] = ()
    try:
        now = _now(wanted, environ)
        netifs = known_or(now.node.netifs, ())
        if os.path.exists(path):
            report = load_report(read_own_input(path, REPORT), path)
            reason = why_not(report, now, most_s, place.nodes)
            uses_sockets = place.nodes > 1 and any(name in SOCKETS for name, _ in report.advice.env)
            if uses_sockets and not wanted.starts_over_sockets:
                reason = reason or "leaves InfiniBand or RoCE unused (--allow-sockets)"
    except PreflightError as error:
        reason = f"can't be used: {str(error).removeprefix(f'{path}: ')}"
    if place.nodes > 1:
        mine = report.created_at if report is not None and not reason else ""
        others = why_no_agreement(place, netifs, mine, AGREE_S)
        reason = reason or (f"can't be used: {others}" if others else "")
    if reason or report is None:
        to_stderr(f"{PROGRAM}: --reuse: {path} {reason}; a new check is made\n")
        return False
    write_atomically(wanted.env_out, render_env(report))
    to_stderr(f"{PROGRAM}: {report.headline}\n")
    if not is_quiet:
        to_stderr(f"{PROGRAM}: no new check: {path} is of {report.created_at}, and nothing has changed since\n")
    return True


def _now(wanted: Request, environ: Mapping[str, str]) -> Now:
    live = live_machine()
    node, _ = probe_node(live, live, only=FACTS)
    node = replace(node, environment=reported_environment(environ))
    booted_at = datetime.now(timezone.utc) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))
    by_index = {gpu.nvml_index: str(gpu.uuid) for gpu in numbered_gpus(node)}
    visible, chosen = (tuple(by_index[each] for each in chosen_gpus(node, which)) for which in (None, wanted.gpus))
    return Now(
        node, visible, chosen, datetime.now(timezone.utc), booted_at,
        wanted.profile, wanted.backend, wanted.nproc, wanted.strict,
    )  # fmt: skip
