"""`preflight probe` and `preflight capture`: the facts of one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from preflight.cli.options import (
    Gpus,
    JsonPath,
    MachineOption,
    ProbeDeadline,
    Strict,
    SysrootOption,
    TopoOption,
    check_seconds,
)
from preflight.cli.output import PROGRAM, STDOUT, check_outputs, print_result, style
from preflight.cli.program import STARTED_AT, app
from preflight.cli.running import machine_at
from preflight.errors import UsageError
from preflight.system.files import read_input, write_atomically
from preflight.system.signals import raise_at
from preflight.system.streams import to_stderr, to_stdout

if TYPE_CHECKING:
    from preflight.survey import Survey


@app.command()
def probe(
    gpus: Gpus = None,
    json: JsonPath = None,
    sysroot: SysrootOption = None,
    topo: TopoOption = None,
    machine: MachineOption = None,
    strict: Strict = False,
    deadline: ProbeDeadline = None,
) -> None:
    """Print what this node is made of, and the findings that follow from that alone. Starts nothing, needs no torch.

    Exit codes: 0 nothing wrong, 1 something is, 2 usage, 3 preflight could not look.
    """
    from preflight.judge.probe_exit import probe_exit_code  # noqa: PLC0415
    from preflight.render.probe_page import render_probe_page  # noqa: PLC0415

    check_seconds("--deadline", deadline)
    ends_at = None if deadline is None else STARTED_AT + deadline
    if ends_at is not None:  # what is not isolated can stall too: a file on a dead server, a pipe that nobody writes
        raise_at(ends_at, f"the deadline of {deadline:g} s came before there was anything to tell")
    check_outputs(*([json] if json not in (None, STDOUT) else []))
    seen = _survey(gpus, sysroot, topo, machine, ends_at)
    shown = (seen.node, seen.findings, seen.skipped)
    print_result(
        json,
        lambda: _document(seen),
        lambda: render_probe_page(*shown, style(), seen.gpu_set, seen.expected),
    )
    if seen.cut_short:
        to_stderr(f"{PROGRAM}: the deadline of {deadline:g} s came first; not read: {', '.join(seen.cut_short)}\n")
    code = probe_exit_code(seen.findings, seen.skipped, strict=strict, is_cut_short=bool(seen.cut_short))
    raise typer.Exit(code)


def _document(seen: Survey) -> str:
    from preflight.render.json_document import render_probe_json  # noqa: PLC0415

    return render_probe_json(seen.node, seen.findings, seen.skipped, seen.gpu_set, seen.expected)


@app.command()
def capture(
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where it goes; - is stdout.")] = STDOUT,
    sysroot: SysrootOption = None,
) -> None:
    """Write everything that the probes read of this machine as one JSON, for `preflight probe --machine` elsewhere.

    Host names, MAC and IP addresses, GUIDs, serials and UUIDs are replaced, the same ones alike.
    """
    from preflight import survey  # noqa: PLC0415

    check_outputs(output)
    text = survey.capture(machine_at(sysroot))
    if output == STDOUT:
        to_stdout(text)
    else:
        write_atomically(output, text)


def _survey(
    gpus: str | None, sysroot: str | None, topo: str | None, capture_file: str | None, ends_at: float | None
) -> Survey:
    """Return the facts of the one machine that was named, by default of this one."""
    from preflight import survey  # noqa: PLC0415

    named = [name for name, given in (("sysroot", sysroot), ("topo", topo), ("machine", capture_file)) if given]
    if len(named) > 1:
        raise UsageError(f"--{' and --'.join(named)}: one machine at a time")
    if topo:
        return survey.survey_topology(read_input(topo), gpus)
    if capture_file:
        return survey.survey_capture(read_input(capture_file), gpus, ends_at)
    return survey.survey_machine(machine_at(sysroot), gpus, ends_at)
