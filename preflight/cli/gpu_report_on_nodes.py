"""`preflight gpu-report --on`: collect the archives of all nodes in one folder.

On each node, `answer_back` runs.
"""

from __future__ import annotations

import base64
import os
import tempfile
from typing import Any

import typer

from preflight.check.on_nodes import way_to
from preflight.check.option_kinds import ANSWERS_BACK
from preflight.check.options import slurm_words
from preflight.cli.commands import GpuReportOptions
from preflight.cli.gpu_report import GOOD, REMOVED, limit_s, pack
from preflight.cli.node_lines import folder_made, say_back, visit_all
from preflight.cli.output import PROGRAM, check_outputs, refuse_stdout
from preflight.errors import MalformedInput
from preflight.model.units import counted
from preflight.show.text import line
from preflight.system.files import set_aside, write_bytes_atomically
from preflight.system.signals import end_with_stdin
from preflight.system.streams import to_stdout

FOLDER = "preflight-gpu-reports"
GRACE_S = 60.0  # to wake and probe the GPUs, and to send the archive


def gpu_report(asked: GpuReportOptions) -> None:
    """Run `preflight gpu-report --on`, which collects an archive from each node.

    If `--on` is ANSWERS_BACK, test this node and send its archive back.
    """
    # ANSWERS_BACK means that another preflight has started this process.
    if asked.on == ANSWERS_BACK:
        answer_back(asked)
        return
    slurm_options = slurm_words(asked.slurm_args, asked.on)
    refuse_stdout("--output", asked.output)
    folder = FOLDER if asked.output == GpuReportOptions().output else asked.output
    bad = set[str]()

    def take(host: str, report: Any) -> str:
        try:
            archive = base64.b64decode(report["archive"], validate=True)
            ended = {str(name): str(outcome) for name, outcome in report["parts"].items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedInput(f"it has no archive: {type(error).__name__}") from None
        write_bytes_atomically(paths[host], archive)
        others = [f"{name} {outcome}" for name, outcome in ended.items() if outcome not in GOOD]
        if others:
            bad.add(host)
        ran = sum(outcome != "not run" for outcome in ended.values())
        return f"{counted(ran, 'part')} ran" + (f"; {', '.join(others)}" if others else "")

    with (
        folder_made("--output", folder),
        way_to(str(asked.on), lambda *_: there(asked), os.environ, slurm_options) as way,
    ):
        paths = {host: os.path.join(folder, f"{host}.tar.gz") for host in way.commands}
        for path in paths.values():
            set_aside(path)  # an earlier run's answer is not this one's
        check_outputs(*paths.values())
        missing, stopped = visit_all(way, limit_s(asked) + GRACE_S, take, is_quiet=False)
    for host, why in missing.items():
        to_stdout(f"{host}: {line(why)}\n")
    if here := len(paths) - len(missing):
        to_stdout(
            f"{os.path.join(folder, '')} has the archives of {counted(here, 'node')}. {REMOVED}\n"
            "Only the names of the files are those of the nodes.\n"
            f"Next  look into them, rename them, then attach them to an issue of {PROGRAM}.\n"
        )
    if stopped is not None:
        raise stopped
    raise typer.Exit(1 if bad else 3 if missing else 0)


def there(asked: GpuReportOptions) -> list[str]:
    """Return the arguments of the preflight command that runs on each node and sends the archive back."""
    given = {"--gpus": asked.gpus, "--deadline": asked.deadline}
    values = [f"{name}={value}" for name, value in given.items() if value is not None]
    return ["gpu-report", f"--on={ANSWERS_BACK}", *values]


def answer_back(asked: GpuReportOptions) -> None:
    """Run the tests on this node, and send the archive as one line on stdout.

    No file is left on this node.
    """
    end_with_stdin()
    say_back({"started": True})
    with tempfile.TemporaryDirectory(prefix="preflight-gpu-") as folder:
        path = os.path.join(folder, "archive.tar.gz")
        results = pack(asked, path, len)
        with open(path, "rb") as file:
            archive = base64.b64encode(file.read()).decode()
    say_back({"report": {"archive": archive, "parts": {result.name: result.outcome for result in results}}})
