"""Read the output of NCCL's own diagnostics, which NCCL writes to standard output, not to NCCL_DEBUG_FILE."""

from __future__ import annotations

from preflight.model.nccl_diagnostics import COMPLETED, NcclDiagnosis, lines_of
from preflight.model.trial import TrialResult

MOST_BYTES = 1 << 20
MOST_LINES, MOST_CHARACTERS = 60, 400  # of what the report keeps


def read_diagnosis(path: str, nccl: str, trial: TrialResult, duration_s: float) -> NcclDiagnosis:
    """Return what NCCL's own diagnostics wrote to the file `path`, the log of rank 0.

    If the diagnostics finished, `problem` is "" even if the test run failed later.
    """
    # `nccl` is NCCL's version, and `duration_s` is the duration of the test run `trial`.
    try:
        with open(path, "rb") as log:
            text = log.read(MOST_BYTES).decode(errors="replace")
    except OSError as error:
        return NcclDiagnosis(nccl, (), f"its log could not be read: {error.strerror}", duration_s)
    lines = lines_of(text)
    problem = trial.problem or ("NCCL printed no last line" if lines else "NCCL printed no result")
    # NCCL prints its last line also if it gives up, because other ranks were killed while they still started.
    has_started = all(stage != "init" for _, stage in trial.stages)
    if has_started and any(line.startswith(COMPLETED) for line in lines):
        problem = ""
    failures = set(NcclDiagnosis(nccl, lines, "", 0.0).failures)
    kept = set(sorted(lines, key=lambda line: line not in failures)[:MOST_LINES])  # what failed is kept first
    return NcclDiagnosis(nccl, tuple(line[:MOST_CHARACTERS] for line in lines if line in kept), problem, duration_s)
