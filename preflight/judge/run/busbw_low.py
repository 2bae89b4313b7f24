from __future__ import annotations

from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import fine_size
from preflight.judge.speed_judges import LARGE_BYTES, Measured, beside_links, outranked_by
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.transport import NVLS, path_names
from preflight.model.trial import CollectiveResult
from preflight.model.units import rate_text, three_digits
from preflight.search.gpus.link_speeds import NVLINK_PATH, NVLS_PATH

LOW = Bound(
    0.6, "of the lowest speed that healthy machines reach; a lower speed is a WARN",
    "we chose this share, because healthy machines differ much over PCIe and host memory; every published result is "
    "higher",
    "tests/search/gpus/test_published_results.py",
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
FAR_TOO_LOW = Bound(
    0.3, "of the lowest speed that healthy machines reach; a lower speed is a FAIL",
    "this is half of the share for a WARN",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
SURE_BYTES = Bound(
    512 << 20, "bytes or more, over NVLink or NVLS",
    "at this size and above, published results of healthy machines agree, so the two stricter shares in the next rows "
    "apply",
    "tests/search/gpus/test_published_results.py",
    "too low: healthy hardware is blamed; too high: slow hardware passes",
)  # fmt: skip
SURE_LOW = Bound(
    1.0, "times the lowest speed that healthy machines reach; a lower speed is a WARN",
    "every published result of a healthy machine at these sizes is at least 1.02 times that speed",
    "tests/search/gpus/test_published_results.py",
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
SURE_FAR_TOO_LOW = Bound(
    0.5, "of the lowest speed that healthy machines reach; a lower speed is a FAIL",
    "this is half of what the slowest healthy machine with a published result reaches",
    JUDGMENT,
    "too high: a node that only lost some links is rejected; too low: such a node is accepted",
)  # fmt: skip
SURE_PATHS = (NVLINK_PATH, NVLS_PATH)
LATE = 1.2  # a rank whose own time is longer than the others' by this factor is mentioned


@run_check(
    "busbw-low",
    blame=Blame.HOST,
    unseen=Unseen.ACCEPTANCE,
    reads=("trials", "gpus", "gpu_paths"),
    bounds=(LARGE_BYTES, LOW, FAR_TOO_LOW, SURE_BYTES, SURE_LOW, SURE_FAR_TOO_LOW),
)
def busbw_low(case: Case) -> Findings:
    """Large collectives reach the speed that healthy machines reach over the same links.

    Yields a WARN for the collective that is slowest compared with its expected speed, or a FAIL if the collective is
    far too slow. If a policy or a baseline decides about speeds, yields only an INFO.

    Can't see: which rank or link is slow (behind a slow link, other ranks are late), sizes below 64 MiB, runs of
    several nodes, GPUs that another job used, and links whose rate is in no table.
    """
    trial, measured = beside_links(case)
    worst = min(measured, key=lambda each: each.share / _shares(each)[0])
    low, far_too_low = _shares(worst)
    if worst.share >= low:
        return
    severity, other = Severity.FAIL if worst.share < far_too_low else Severity.WARN, outranked_by(case)
    collective = worst.result.collective.value
    ways = [*path_names(trial.transport), *([NVLS.name] if NVLS in trial.transport else [])]
    yield busbw_low.finding(
        Severity.INFO if other else severity,
        f"trial {trial.candidate}, {collective} {fine_size(worst.result.size_bytes)}",
        _problem(worst) + (f" [{other} decides; was {severity.value}]" if other else ""),
        "look for a link below its width or generation, a throttled GPU, or a rank on the wrong socket. Run "
        "`nvidia-smi -q -d CLOCK,PERFORMANCE,PCIE`, `nvidia-smi nvlink -s` and `nvidia-smi topo -m`",
        Evidence("expected speed", worst.expected.formula, "preflight/data/links.toml"),
        *(_evidence(each) for each in measured),
        Evidence("paths of the data", ", ".join(sorted(ways)) or "not known", f"trial {trial.candidate}"),
    )


def _shares(measured: Measured) -> tuple[float, float]:
    """Return (low, far too low) as two shares of the lowest healthy speed.

    A speed below the first share is low. A speed below the second share is far too low.
    """
    is_sure = measured.expected.path in SURE_PATHS and measured.result.size_bytes >= SURE_BYTES.value
    return (SURE_LOW.value, SURE_FAR_TOO_LOW.value) if is_sure else (LOW.value, FAR_TOO_LOW.value)


def _problem(worst: Measured) -> str:
    expected = worst.expected
    how = "far too low" if worst.share < _shares(worst)[1] else "low"
    limit = (
        f"{worst.busbw_gb_s / expected.limit_gb_s:.0%} of the {rate_text(expected.limit_gb_s)} that its links can carry"
    )
    healthy = f"{three_digits(expected.low_gb_s)} to {three_digits(expected.high_gb_s)} is healthy"
    return f"a busbw of {rate_text(worst.busbw_gb_s)} is {how}, because it is {limit}; {healthy}{_late(worst.result)}"


def _evidence(each: Measured) -> Evidence:
    size = fine_size(each.result.size_bytes)
    return Evidence(each.result.collective.value, f"{rate_text(each.busbw_gb_s)}, {each.share:.0%} of healthy", size)


def _late(result: CollectiveResult) -> str:
    latest = max(result.ranks, key=lambda rank: rank.slowdown, default=None)
    if latest is None or latest.slowdown < LATE:
        return ""
    times = f"{latest.slowdown:.1f} times later than the others"
    return f"; rank {latest.rank} is {times}, so this rank or a link near it in the ring is slow"
