"""The timings that determine a timeout, from test runs, a measured directory and NCCL's own retries."""
# NCCL reports its own error only after its retries. A shorter timeout would hide this error.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from preflight.model.facts import NodeFacts
from preflight.model.gap import Gap, known_or
from preflight.model.parsing import parsed_integer
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import Timings
from preflight.model.trial import CollectiveResult, Outcome, TrialResult

NO_DIRECTORY = Gap("no --checkpoint-dir was given, so no storage was measured")
NO_TRIAL = Gap("no collective was measured, so run `preflight check` and pass its report with --report")
NO_VERIFIED = Gap("the report has no verified collective")
IB_UNIT_S = 4.096e-6  # of the local ACK timeout: 4.096 us * 2**NCCL_IB_TIMEOUT (InfiniBand specification)
MOST_IB_RETRIES = 7
RETRY_DEFAULTS = {
    "NCCL_IB_TIMEOUT": "20",  # since 2.23; before, the exponent was smaller
    "NCCL_IB_RETRY_CNT": "7",
    "NCCL_SOCKET_RETRY_CNT": "34",
    "NCCL_SOCKET_RETRY_SLEEP_MSEC": "100",
}
LONGEST_S = 86400.0 * 365


def timings(
    trials: Sequence[TrialResult] | None, ranks: int, storage: StorageSpeed | None, settings: Mapping[str, str]
) -> Timings:
    """Return the measured timings that determine a timeout.

    `trials` is None if no check was made. `settings` has NCCL's variables.
    """
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
        read_all_bytes_per_s=NO_DIRECTORY if storage is None else _above_zero(storage.read_all_bytes_per_s),
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
    """Return the NCCL variables that the job inherits. The environment takes precedence over NCCL's own files."""
    files = {entry.name: entry.value for entry in reversed(known_or(node.nccl_conf, ()))}  # the first one counts
    return files | {variable.name: variable.value for variable in known_or(node.environment, ())}


def _worst(values_us: Iterable[float | Gap], missing: Gap) -> float | Gap:
    """Return the longest known time of `values_us`, converted to seconds.

    If no time is known, the result is a Gap object with the reason. If `values_us` is empty, the result is `missing`.
    """
    read = list(values_us)
    known = [value for value in read if not isinstance(value, Gap)]
    if known:
        return max(known) / 1e6
    return next((value for value in read if isinstance(value, Gap)), missing)


def _spread_us(result: CollectiveResult) -> float:
    own = [rank.own_us for rank in result.ranks]
    return max(own) - min(own)


def _named(storage: StorageSpeed) -> str:
    """Return the path of the measured directory, with the type of its file system.

    The type is important because tmpfs is memory. The speed of tmpfs says nothing about a disk.
    """
    kind = "" if isinstance(storage.file_system, Gap) else f" ({storage.file_system})"
    return f"{storage.directory}{kind}"


def _above_zero(speed: float | Gap) -> float | Gap:
    return speed if isinstance(speed, Gap) or speed > 0 else Gap("the directory accepted no data within the time limit")


def nccl_report_s(settings: Mapping[str, str]) -> tuple[float, str]:
    """Return for how many seconds NCCL retries before it reports a network error, and a text on the calculation.

    `settings` has NCCL's variables.
    """
    # As NCCL reads them; an empty one means the default.
    exponent, retries, count, sleep_ms = (
        parsed_integer(settings.get(name) or default)[0] for name, default in RETRY_DEFAULTS.items()
    )
    ib_s, socket_s = ib_retries_s(exponent, retries), socket_retries_s(count, sleep_ms)
    ib = f"{ib_s:.0f} s" if ib_s else "for ever (set by NCCL_IB_TIMEOUT), which is longer than any timeout"
    return max(ib_s, socket_s), f"its retries take {socket_s:.0f} s on sockets, on InfiniBand {ib}"


def ib_retries_s(exponent: int, retries: int) -> float:
    """Return for how many seconds InfiniBand retries, at most LONGEST_S.

    The result is 0.0 if the retries never end. This is the case if `exponent` is 0, or 32 or more.
    """
    # `exponent` is the exponent of the InfiniBand timeout.
    if not 0 < exponent < 32:
        return 0.0
    return min(LONGEST_S, IB_UNIT_S * float(1 << exponent) * max(0, min(retries, MOST_IB_RETRIES)))


def socket_retries_s(count: int, sleep_ms: int) -> float:
    """Return for how many seconds NCCL tries to connect a socket, with `count` tries.

    NCCL sleeps before a try. Each sleep is `sleep_ms` longer than the sleep before.
    """
    count, sleep_ms = max(0, min(count, 10**6)), max(0, min(sleep_ms, 10**9))
    return min(LONGEST_S, sleep_ms / 1000 * count * (count + 1) / 2)
