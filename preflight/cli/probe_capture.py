"""`preflight probe` and `preflight capture`: read the state of one machine."""

from __future__ import annotations

import typer

from preflight.check import survey
from preflight.cli import commands
from preflight.cli.output import PROGRAM, check_outputs, detail_of, print_result, style, write_or_print
from preflight.cli.program import STARTED_AT
from preflight.errors import UsageError
from preflight.judge.check import CheckResults, probe_exit_code
from preflight.model.finding import Blame
from preflight.model.input_limits import CAPTURE, TOPOLOGY
from preflight.show.probe_page import probe_page
from preflight.system.inputs import read_input
from preflight.system.kernel_queries import machine_at
from preflight.system.signals import raise_at
from preflight.system.streams import to_stderr


def probe(asked: commands.ProbeOptions) -> None:
    """Run `preflight probe`: read the machine, check the values, print the result, and exit with 0, 1 or 3."""
    ends_at = None if asked.deadline is None else STARTED_AT + asked.deadline
    if ends_at is not None:  # what is not isolated can stall too: a file on a dead server, a pipe without a writer
        raise_at(ends_at, f"the deadline of {asked.deadline:g} s came before any result")
    check_outputs(asked.json)
    classes = _classes(asked.reason)
    facts = _survey(asked.gpus, asked.sysroot, asked.topo, asked.machine, ends_at)
    checked = facts.checked if not classes else facts.checked.of_classes(classes)
    exit_code = probe_exit_code(checked, strict=asked.strict, is_cut_short=bool(facts.cut_short))
    detail = detail_of(asked.verbose, asked.quiet)

    def page() -> str:
        if classes:
            return _reason(checked)
        answer = probe_page(facts.node, *facts.checked, exit_code, facts.gpu_set, facts.expected)
        return answer.shown(detail, style())

    print_result(asked.json, lambda: _document(facts), page)
    if facts.cut_short:
        to_stderr(
            f"{PROGRAM}: the deadline of {asked.deadline:g} s came first; not read: {', '.join(facts.cut_short)}\n"
        )
    raise typer.Exit(exit_code)


def _classes(named: str | None) -> tuple[Blame, ...]:
    """Return the fault domains that `named` lists, or () if `named` is None.

    Raise UsageError if a name in `named` is not a fault domain.
    """
    names = [] if named is None else [each.strip() for each in named.split(",")]
    known = {each.value: each for each in Blame}
    for name in names:
        if name not in known:
            raise UsageError(f"--reason {named}: no class {name!r}; the classes are {', '.join(known)}")
    return tuple(known[name] for name in names)


def _reason(checked: CheckResults) -> str:
    from preflight.show.drain_nagios_k8s import render_probe_reason  # noqa: PLC0415  loads a report's records

    return render_probe_reason(checked.findings)


def _document(facts: survey.Survey) -> str:
    from preflight.show.probe_json import render_probe_json  # noqa: PLC0415  loads a report's records: 40 ms

    return render_probe_json(facts.node, *facts.checked, facts.gpu_set, facts.expected)


def capture(asked: commands.CaptureOptions) -> None:
    """Run `preflight capture`: write a capture of this machine, or of a recorded tree of files."""
    check_outputs(asked.output)
    write_or_print(asked.output, survey.capture(machine_at(asked.sysroot)))


def _survey(
    gpus: str | None, sysroot: str | None, topo: str | None, capture_file: str | None, ends_at: float | None
) -> survey.Survey:
    """Return the survey of the machine that an argument names, or of this machine if no argument names one.

    Raise UsageError if several arguments name a machine.
    """
    named = [name for name, given in (("sysroot", sysroot), ("topo", topo), ("machine", capture_file)) if given]
    if len(named) > 1:
        raise UsageError(f"--{' and --'.join(named)}: one machine at a time")
    if topo:
        return survey.survey_topology(read_input(topo, TOPOLOGY), gpus)
    if capture_file:
        return survey.survey_capture(read_input(capture_file, CAPTURE), gpus, ends_at)
    return survey.survey_machine(machine_at(sysroot), gpus, ends_at)
