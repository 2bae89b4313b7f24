"""A checkpoint directory that can't be written loses the job at its first save."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Evidence, Finding, Severity


def judge(case: Case) -> Iterator[Finding]:
    """Yield a WARN where files could not be written or read back; how fast it is goes into the safe timeout."""
    storage = case.storage
    if storage is None:
        return
    failed = {"written": storage.write_one_bytes_per_s, "read back": storage.read_one_bytes_per_s}
    why = next(((how, speed) for how, speed in failed.items() if isinstance(speed, Gap)), None)
    if why is None:
        return
    how, gap = why
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.WARN,
        subject=storage.directory,
        problem=f"a file could not be {how} there: {gap.reason}",
        fix="`df -h DIR`, `quota`, `mount | grep DIR`, and this user's permissions; then `preflight timeout "
        "--checkpoint-dir DIR`",
        evidence=(Evidence("tried", gap.reason, f"a synced file in {storage.directory}"),),
    )


CHECK = RunCheck(
    name="checkpoint-dir",
    promise="files in the directory of --checkpoint-dir can be written, synced and read back",
    blame=Blame.CONFIGURATION,
    reads=("storage",),
    blind_to="files larger than the few that were tried, and what other nodes do to it",
    judge=judge,
)
