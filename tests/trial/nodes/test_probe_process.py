"""A launcher that is killed leaves neither a child nor a file that one of them wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from preflight.system import processes

LIMIT_S = 20.0
LAUNCHER = """
import json, os, sys, time
from preflight.trial.nodes.probe_process import PATHS, STORAGE, ProbeProcesses
probes = ProbeProcesses(os.environ)
probes.start(PATHS)
asked = {"directory": sys.argv[1], "name": "file", "size_bytes": 4 << 20, "nodes": 1, "work_s": 5.0}
probes.ask(1, "write", asked, 20.0)
while not (answers := probes.answers()):
    time.sleep(0.01)
children = probes._crew.children
print(json.dumps([answers, [children[each].pid for each in (PATHS, STORAGE)]]), flush=True)
time.sleep(600)
"""


def test_a_launcher_that_is_killed_leaves_no_child_and_no_file(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LAUNCHER, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "checksum" in said
        assert os.listdir(tmp_path) == ["file"]
        process.kill()
    _, (paths, storage) = json.loads(said)
    until = time.monotonic() + LIMIT_S
    while not {processes.state(paths), processes.state(storage)} <= set(processes.GONE):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert os.listdir(tmp_path) == []
