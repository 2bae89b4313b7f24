"""From trials and a tried directory to the timings that a timeout depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from preflight.model.facts import NodeFacts
from preflight.model.gap import Gap
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import Timings
from preflight.model.trial import CollectiveResult, Outcome, TrialResult
from preflight.plan.nccl_retries import nccl_report_s

NO_DIRECTORY = Gap("no --checkpoint-dir was given, so no storage was tried")
NO_TRIAL = Gap("no trial of a collective was given: `preflight check` makes one, --report takes it from there")
NO_VERIFIED = Gap("no trial of the report gave a verified collective")


def timings(
    trials: Sequence[TrialResult] | None, ranks: int, storage: StorageSpeed | None, settings: Mapping[str, str]
) -> Timings:
    """Return what was measured; `trials` is None where no check was made, `settings` are NCCL's variables."""
    sound = [trial for trial in trials or () if trial.outcome is Outcome.OK]
    results = [each for trial in sound for each in trial.results if each.verified]
    largest_bytes = max((each.size_bytes for each in results), default=0)
    largest = [each for each in results if each.size_bytes == largest_bytes]
    missing = NO_TRIAL if trials is None else NO_VERIFIED
    report_s, report_why = nccl_report_s(settings)
    return Timings(
        write_one_bytes_per_s=NO_DIRECTORY if storage is None else _above_zero(storage.write_one_bytes_per_s),
        write_all_bytes_per_s=NO_DIRECTORY if storage is None else _above_zero(storage.write_all_bytes_per_s),
        read_one_bytes_per_s=NO_DIRECTORY if storage is None else _above_zero(storage.read_one_bytes_per_s),
        directory="" if storage is None else _named(storage),
        collective_s=_worst((each.p99_us for each in largest), missing),
        collective_bytes=largest_bytes,
        connect_s=_worst((trial.connect_us for trial in sound), missing),
        spread_s=_worst((_spread_us(each) for each in largest if each.ranks), missing),
        ranks=ranks if results else 0,
        nccl_report_s=report_s,
        nccl_report_why=report_why,
    )


def nccl_settings(node: NodeFacts) -> dict[str, str]:
    """Return NCCL's variables as the job inherits them; the environment comes before NCCL's own files."""
    files = () if isinstance(node.nccl_conf, Gap) else node.nccl_conf
    inherited = () if isinstance(node.environment, Gap) else node.environment
    found: dict[str, str] = {}
    for entry in files:
        found.setdefault(entry.name, entry.value)
    return found | {variable.name: variable.value for variable in inherited}


def _worst(values_us: Iterable[float | Gap], missing: Gap) -> float | Gap:
    """Return the longest in seconds, or why there is none."""
    read = list(values_us)
    known = [value for value in read if not isinstance(value, Gap)]
    if known:
        return max(known) / 1e6
    return next((value for value in read if isinstance(value, Gap)), missing)


def _spread_us(result: CollectiveResult) -> float:
    own = [rank.own_us for rank in result.ranks]
    return max(own) - min(own)


def _named(storage: StorageSpeed) -> str:
    """Return the directory with its file system: tmpfs is memory, whose speed says nothing of a disk."""
    kind = "" if isinstance(storage.file_system, Gap) else f" ({storage.file_system})"
    return f"{storage.directory}{kind}"


def _above_zero(speed: float | Gap) -> float | Gap:
    return speed if isinstance(speed, Gap) or speed > 0 else Gap("the directory took nothing in the time that it had")
