"""`preflight fleet` and `preflight baseline`: many reports side by side, and what known-good nodes reach."""

from __future__ import annotations

import os
from collections.abc import Callable

import typer

from preflight.cli import commands
from preflight.cli.output import STDOUT, Detail, check_outputs, detail_of, print_result, refuse_stdout, style
from preflight.errors import UsageError
from preflight.fleet.known_good import learn_from
from preflight.fleet.overview import overview
from preflight.model.fleet import Fleet
from preflight.show.baseline import render_baseline, render_baseline_screen, render_baseline_verdict
from preflight.show.fleet import (
    failing_hosts,
    odd_hosts,
    odd_reasons,
    render_fleet,
    render_host_list,
    state_reasons,
)
from preflight.show.fleet_html import render_fleet_html
from preflight.show.fleet_screen import render_fleet_screen, render_fleet_verdict
from preflight.show.json_document import render_json
from preflight.system.files import write_atomically
from preflight.system.inputs import read_reports, report_paths

PASSING, FAILING, ODD, UNKNOWN = "passing_nodes.txt", "failing_nodes.txt", "odd_nodes.txt", "unknown_nodes.txt"
WOULD_DRAIN = "would_drain_nodes.txt"


def fleet(asked: commands.FleetOptions) -> None:
    """Carry out `preflight fleet`."""
    out = asked.out
    if out is not None:
        _make_dir(out)
    check_outputs(asked.json)
    compared = overview(read_reports(report_paths(asked.reports)))
    written = [] if out is None else _write(compared, out)
    written += [asked.json] if asked.json not in (None, STDOUT) else []
    detail = detail_of(asked.verbose, asked.quiet)
    print_result(asked.json, lambda: render_json(compared), lambda: _page(compared, detail, out or "", written))
    raise typer.Exit(compared.exit_code)


def _page(compared: Fleet, detail: Detail, out: str, written: list[str]) -> str:
    match detail:
        case Detail.VERDICT:
            return render_fleet_verdict(compared, style())
        case Detail.SCREEN:
            return render_fleet_screen(compared, style(), out, written)
        case Detail.ALL:
            return render_fleet(compared, style())


def _write(compared: Fleet, out: str) -> list[str]:
    """Write the page and the lists of hosts; return the files as a reader looks for them."""
    for name, text in _host_lists(compared).items():
        write_atomically(os.path.join(out, name), text)
    page = os.path.join(out, commands.FLEET_PAGE)
    write_atomically(page, render_fleet_html(compared))
    return [page, os.path.join(out, "*_nodes.txt")]


def _make_dir(path: str) -> None:
    refuse_stdout("--out", path)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        why = "not a directory" if isinstance(error, FileExistsError) else str(error.strerror).lower()
        raise UsageError(f"--out {path}: {why}") from None


def _host_lists(compared: Fleet) -> dict[str, str]:
    """Return each list of hosts by its file, every host that is not well with its reason in words."""
    states = {UNKNOWN: compared.unknown, WOULD_DRAIN: compared.would_drain}
    lists = {name: render_host_list([each.host for each in of], state_reasons(of)) for name, of in states.items()}
    lists[PASSING] = render_host_list(compared.passing)
    lists[FAILING] = render_host_list(failing_hosts(compared), state_reasons(compared.failing))
    lists[ODD] = render_host_list(sorted(odd_hosts(compared)), odd_reasons(compared))
    return lists


def baseline(asked: commands.BaselineOptions) -> None:
    """Carry out `preflight baseline`."""
    output = asked.output
    check_outputs(output)
    learnt = learn_from(read_reports(report_paths(asked.reports)))
    pages: dict[Detail, Callable[[], str]] = {
        Detail.VERDICT: lambda: render_baseline_verdict(learnt),
        Detail.SCREEN: lambda: render_baseline_screen(learnt, style(), output),
        Detail.ALL: lambda: render_baseline(learnt, style(), output),
    }
    print_result(output, lambda: render_json(learnt.baseline), pages[detail_of(asked.verbose, asked.quiet)])
