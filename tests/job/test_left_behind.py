"""What still runs after a job, and what is none of it."""

from __future__ import annotations

import json
import subprocess
import sys

# `timeout` (a group of its own), preflight and its watcher, forked within one tick of the clock or nearly so.
FORKS = """
import json, os
from preflight.job.left_behind import Family
from preflight.system.processes import all_processes

if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        if os.fork() == 0:
            table = all_processes()
            run = table[os.getppid()]
            found = Family(os.getpid()).left()
            print(json.dumps([run.start_time == table[run.parent].start_time, run.parent, found]), flush=True)
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
"""


def test_a_program_that_started_preflight_in_the_same_instant_is_not_left_by_the_job() -> None:
    for _ in range(20):
        ran = subprocess.run([sys.executable, "-c", FORKS], check=True, capture_output=True, text=True, timeout=60)
        is_same_instant, above, found = json.loads(ran.stdout)
        assert above not in found
        if is_same_instant:
            return
    raise AssertionError("the processes never began in the same instant")
