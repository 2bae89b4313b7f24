"""A trial whose ranks only say "unhandled system error" is explained by what NCCL wrote into its own log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.explain.failed_trial import with_cause
from preflight.judge.run.trial_as_is_failed import trial_failed
from preflight.model.codec import decode
from preflight.model.trial import Outcome, TrialResult
from tests.judge.findings import found, only
from tests.node_facts import case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DRIVER = """
import json, os, sys, time
from preflight.trial.launch_result import Launch
from preflight.trial.agent_process import started_agent
from preflight.trial.launcher import launch
from preflight.trial.run_dir import make_run_dir, remove_run_dir
from preflight.model.codec import encode
from preflight.model.run_spec import Backend, NodePlace, RunSpec, TrialPlan
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.profiles import stage_limits
run_dir = make_run_dir()
launched = Launch()
ends = time.monotonic() + 60
spec = RunSpec(
    run_dir=run_dir, backend=Backend("wordy", "wordy", "nccl"), place=NodePlace(2),
    trials=TrialPlan((DEFAULT_CANDIDATE,), stage_limits("gloo", None)), deadline_monotonic_s=ends,
)
try:
    with started_agent(os.environ) as agent:
        launch(spec, agent, launched, lambda result: None, kill_at=ends + 10)
finally:
    remove_run_dir(run_dir)
launched = launched.result
print(json.dumps({"problem": launched.problem, "trials": [encode(trial) for trial in launched.trials]}))
"""


@pytest.mark.integration
def test_the_cause_comes_from_nccls_own_log_and_reaches_the_finding(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE / "wordy"))), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER], env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    document = json.loads(ran.stdout.splitlines()[-1])
    trial = decode(TrialResult, document["trials"][0])
    assert (document["problem"], trial.outcome) == ("", Outcome.INIT_ERROR)
    assert all("shm" not in end.detail for end in trial.ranks)

    told = with_cause(trial)
    (cause,) = told.causes
    assert cause.cause == "shm_too_small"
    assert "failed to extend /dev/shm/nccl-Ab12" in cause.proof
    assert cause.source.startswith("nccl/") and cause.source.endswith(".log:42")
    assert "[shm_too_small]" in told.problem

    finding = only(found(trial_failed, case(told)))
    assert (f"cause {cause.cause}", cause.proof, cause.source) in [
        (e.what, e.value, e.source) for e in finding.evidence
    ]
