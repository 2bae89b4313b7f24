"""A `preflight` that answers as told and an `scontrol` that notes its words, for the examples in scripts/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.model.finding import Blame
from preflight.show.drain_nagios_k8s import render_drain
from tests.conftest import PROJECT
from tests.show.judged import BLAMED, accepted

SCRIPTS = PROJECT / "scripts"
ANSWERS = {0: render_drain(accepted()), 1: render_drain(BLAMED[Blame.GPU]()), 3: render_drain(BLAMED[Blame.HARNESS]())}

STAND_IN = """#!{python}
# Answers as told, one answer a call and the last ever after, and writes what --also and --report ask for.
import json, sys
answers = json.load(open({answers!r}))
calls = open({log!r}, "a+")
calls.seek(0)
code, text, page = answers[min(len(calls.readlines()), len(answers) - 1)]
if code == 127:
    sys.exit(127)
for name, word in zip(["", *sys.argv], sys.argv):
    form, _, path = word.partition("=")
    if path and form in ("drain", "html", "junit", "prometheus", "k8s", "markdown"):
        open(path, "w").write(text if form == "drain" else form)
    if name == "--report":
        open(word, "w").write("")
calls.write(" ".join(sys.argv[1:]) + "\\n")
print(page)
sys.exit(code)
"""
SCONTROL = """#!/bin/sh
[ "$1" = show ] && exec cat {shown}
for word; do printf "%s\\n" "$word" >> {log}; done
"""


class StandIn:
    """A folder for PATH with a `preflight` that answers as it was told, and an `scontrol` that notes its words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.out = folder / "out"
        self.bin.mkdir()
        names = {name: str(folder / name) for name in ("answers", "log")}
        self._write("preflight", STAND_IN.format(python=sys.executable, **names))
        self._write("scontrol", SCONTROL.format(log=folder / "scontrol", shown=folder / "shown"))
        self.shows()

    def _write(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def answers(self, *codes: int) -> None:
        self.says(*((code, ANSWERS.get(code, ""), "the page") for code in codes))

    def shows(self, **values: str) -> None:
        """Have `scontrol show node` show these values, as far as there are any."""
        lines = [f"   {name}={value} [root@2026-11-23T10:00:00]" * bool(value) for name, value in values.items()]
        (self.folder / "shown").write_text("\n".join(["NodeName=n7 Arch=x86_64", *filter(None, lines), ""]))

    def says(self, *answers: tuple[int, str, str]) -> None:
        """Have the calls answered by exit code, drain reason and page, the last of them ever after."""
        (self.folder / "answers").write_text(json.dumps(answers))

    @property
    def told(self) -> list[str]:
        """Return the words that scontrol was given."""
        path = self.folder / "scontrol"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), **env}
        return subprocess.run(
            argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=100
        )


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)
