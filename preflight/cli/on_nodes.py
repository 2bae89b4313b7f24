"""`preflight check --on`: check many nodes, and print one summary.

On each node, `answer_back` runs.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import typer

from preflight.check import app as application
from preflight.check.k8s_job import create, k8s_job
from preflight.check.on_nodes import check_there, way_to
from preflight.check.request import Request
from preflight.cli.check_bench import given_up, run_ranks, shadowed
from preflight.cli.check_outputs import open_outputs, write_and_print
from preflight.cli.node_lines import folder_made, say_back, visit_all
from preflight.cli.output import PROGRAM, check_outputs, detail_of, print_result, refuse_stdout, style
from preflight.errors import Interrupted, LaunchError, UsageError
from preflight.fleet.overview import overview
from preflight.judge.check import all_checks
from preflight.model.codec import decode, encode
from preflight.model.fleet import Fleet, NodeState
from preflight.model.placement import compress
from preflight.model.report import NodeVerdict, Report
from preflight.show.document import Text
from preflight.show.fleet import fleet_page
from preflight.show.json_document import dump, render_json
from preflight.show.screen import Page
from preflight.show.text import Detail, line
from preflight.show.verdict import is_bad, is_good
from preflight.system.files import set_aside, write_atomically
from preflight.system.inputs import read_reports
from preflight.system.signals import end_with_stdin
from preflight.system.streams import Progress, to_stderr, to_stdout
from preflight.trial.agent_process import AgentProcess
from preflight.trial.run_dir import remove_run_dir

FOLDER = "preflight-reports"


def check(request: Request, agent: AgentProcess | None = None) -> None:
    """Run `preflight check --on`.

    If `agent` is given, another preflight has started this process. This process then checks only its own node and
    sends the report back.
    """
    if agent is not None:
        answer_back(request, agent)
    elif str(request.on).startswith("k8s:"):
        check_on_k8s(request)
    elif request.together:
        check_together(request)
    else:
        check_on(request)


def check_on_k8s(request: Request) -> None:
    """Print the Kubernetes Job that checks the nodes, or create the Job with kubectl if --apply is given.

    With --apply, the exit code is 3, because the verdict comes later from the pods of the Job.
    """
    request.must_make_sense({check.name for check in all_checks()})
    job = k8s_job(request)
    if not request.apply:
        to_stdout(job)
        return
    create(job)
    to_stderr(
        f"{PROGRAM}: nothing is checked yet (exit code 3); `kubectl logs -f job/preflight` has the page; the exit code "
        "of the pods is that of the check. Before the next check, run: kubectl delete job,service preflight\n"
    )
    with shadowed(request.shadow):
        raise typer.Exit(3)


def check_together(request: Request) -> None:
    """Run one check on all named nodes together. Print and write the report that covers the most nodes."""
    request.must_make_sense({check.name for check in all_checks()})
    outputs = open_outputs(request)
    reports: dict[str, Report] = {}

    def take(host: str, report: Any) -> str:
        reports[host] = decode(Report, report)
        return reports[host].headline

    arguments = check_there(request, f"on-{uuid.uuid4().hex[:8]}")
    with shadowed(request.shadow):
        with given_up(request, outputs):
            with way_to(str(request.on), arguments, os.environ, request.slurm_options) as way:
                missing, stopped = visit_all(way, request.until_s, take, is_quiet=outputs.detail is Detail.VERDICT)
                hosts = list(way.commands)
            unheard = "; ".join(f"{host}: {why}" for host, why in missing.items())
            told = sorted(reports, key=lambda host: (-len(reports[host].nodes), hosts.index(host)))
            if not told:
                raise stopped or LaunchError(f"no node sent a report: {unheard}")
        report = _with_unheard(reports[told[0]], unheard)
        if stopped is not None:
            report = replace(report, exit_code=stopped.exit_code)
        write_and_print(application.Checked(report, "", stopped), outputs)


def _with_unheard(report: Report, unheard: str) -> Report:
    """Return the multi-node report, with a problem that names the nodes which sent no report.

    A report with the verdict `ready` is returned unchanged: the nodes took part in the tests and were lost only
    afterwards.
    """
    if not unheard or is_good(report):
        return report
    report = replace(report, problems=(*report.problems, f"no report came from {unheard}"))
    if is_bad(report):
        return report
    start = "node unknown" if isinstance(report.node_verdict, NodeVerdict) else "unknown"
    return replace(report, headline=f"{start}: {unheard}")


def check_on(request: Request) -> None:
    """Check each named node separately, and print one summary.

    A node that sent no report counts as unknown.
    """
    request.must_make_sense({check.name for check in all_checks()})
    folder = FOLDER if request.report == Request().report else request.report
    refuse_stdout("--report", folder)
    check_outputs(request.json)
    detail = detail_of(request.verbose, request.quiet)

    def take(host: str, report: Any) -> str:
        write_atomically(paths[host], dump(report))
        return str(report.get("headline") or report.get("verdict"))

    way_there = way_to(str(request.on), check_there(request, ""), os.environ, request.slurm_options)
    with folder_made("--report", folder), shadowed(request.shadow), way_there as way:
        paths = {host: os.path.join(folder, f"{host}.json") for host in way.commands}
        for path in paths.values():
            set_aside(path)  # an earlier run's answer is not this one's
        check_outputs(*paths.values())
        missing, stopped = visit_all(way, request.until_s, take, is_quiet=detail is Detail.VERDICT)
        answered = [host for host in paths if host not in missing]
        fleet = _with_missing(overview(_named(paths, answered)), missing)
        written = [os.path.join(folder, "")] if answered else []
        page = _with_exclude(fleet_page(fleet, "", written), fleet)
        print_result(request.json, lambda: render_json(fleet), lambda: page.shown(detail, style()))
        if stopped is not None:
            raise stopped
        raise typer.Exit(fleet.exit_code)


def _named(paths: dict[str, str], reported: Sequence[str]) -> Iterator[tuple[str, object, str]]:
    """Yield the reports with each node's host name replaced by the node's name in --on.

    The scheduler knows the names in --on.
    """
    hosts = iter(reported)
    for path, document, problem in read_reports(paths[host] for host in reported):
        host = next(hosts)
        match document:
            case {"nodes": [dict() as node, *_]}:
                node["host"] = host
            case _:
                pass
        yield path, document, problem


def _with_missing(fleet: Fleet, missing: dict[str, str]) -> Fleet:
    """Return the overview, with the nodes that sent no report added as unknown."""
    silent = tuple(NodeState(host, "", "unknown", (line(why),)) for host, why in missing.items())
    return replace(fleet, nodes=fleet.nodes + len(silent), unknown=(*silent, *fleet.unknown))


def _with_exclude(page: Page, fleet: Fleet) -> Page:
    """Return the page with an `--exclude` option for srun and sbatch added.

    The option excludes the nodes that failed or are unknown.
    """
    hosts = {state.host.rpartition("@")[2] for state in (*fleet.failing, *fleet.unknown)}
    if not hosts:
        return page
    option = f"--exclude={compress(hosts)}"
    whole = page.whole
    return replace(page, foot=(*page.foot, ("Exclude", option)), whole=lambda: [*whole(), Text(option, hang=2)])


def answer_back(request: Request, agent: AgentProcess) -> None:
    """Check this node, and print the report as one line for the preflight process that started this process.

    If stdin is closed, the run ends.
    """
    # The end of stdin means that the other process has ended. No file is left on this node.
    end_with_stdin()
    say_back({"started": True})
    request = replace(request, on=None, quiet=True)
    try:
        checked = run_ranks(request, agent, Progress(is_quiet=True))
    except UsageError:
        raise
    except (Exception, Interrupted) as error:
        say_back({"report": encode(application.unprobed(request, error))})
        raise
    if checked.run_dir:
        remove_run_dir(checked.run_dir)
    say_back({"report": encode(checked.report)})
    raise checked.interrupted or typer.Exit(checked.report.exit_code)
