from __future__ import annotations

from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import fine_size
from preflight.judge.speed_judges import Measured, beside_links, outranked_by
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.transport import NVLS, path_names
from preflight.model.trial import CollectiveResult
from preflight.search.gpus.link_speeds import NVLINK_PATH, NVLS_PATH

# Own proposal (facts 8.4), as shares of the least that healthy machines reach at this size over this way.
LOW, FAR_TOO_LOW = 0.6, 0.3
# Of NVLink and NVLS from this size on, every healthy published result is at least 1.02 times that least.
SURE_PATHS, SURE_BYTES, SURE_LOW, SURE_FAR_TOO_LOW = (NVLINK_PATH, NVLS_PATH), 512 << 20, 1.0, 0.5
LATE = 1.2  # a rank that adds so much more than the others is mentioned


@run_check("busbw-low", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("trials", "gpus", "gpu_paths"))
def busbw_low(case: Case) -> Findings:
    """Large collectives reach what the links that they went over give healthy machines.

    What is much slower is held back by a link, a GPU or the host. Yields one finding for the collective that falls
    shortest; nothing where no large size was measured.

    What is expected of the links only notes it where the site's floors or known-good nodes decide.

    Can't see: which rank or link is slow (behind a slow link other ranks are late), sizes below 64 MiB, several nodes,
    GPUs that somebody else used, links whose rate is in no table.
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
        _problem(worst) + (f" [{other} decides; else {severity.value}]" if other else ""),
        "`nvidia-smi -q -d CLOCK,PERFORMANCE,PCIE`, `nvidia-smi nvlink -s`, `nvidia-smi topo -m`: a link that runs "
        "below its width or generation, a throttled GPU, ranks bound to the far socket",
        Evidence("expected", worst.expected.formula, "preflight/data/links.toml"),
        *(_evidence(each) for each in measured),
        Evidence("went over", ", ".join(sorted(ways)) or "not known", f"trial {trial.candidate}"),
    )


def _shares(measured: Measured) -> tuple[float, float]:
    """Return the shares of the least healthy speed below which a speed is low, and far too low."""
    is_sure = measured.expected.path in SURE_PATHS and measured.result.size_bytes >= SURE_BYTES
    return (SURE_LOW, SURE_FAR_TOO_LOW) if is_sure else (LOW, FAR_TOO_LOW)


def _problem(worst: Measured) -> str:
    expected = worst.expected
    how = "far too low" if worst.share < _shares(worst)[1] else "low"
    limit = f"{worst.busbw_gb_s / expected.limit_gb_s:.0%} of the {expected.limit_gb_s:.1f} GB/s that its links carry"
    healthy = f"{expected.low_gb_s:.1f} to {expected.high_gb_s:.1f} would be healthy"
    return f"{worst.busbw_gb_s:.1f} GB/s busbw is {how}: {limit}; {healthy}{_late(worst.result)}"


def _evidence(each: Measured) -> Evidence:
    size = fine_size(each.result.size_bytes)
    return Evidence(each.result.collective.value, f"{each.busbw_gb_s:.1f} GB/s, {each.share:.0%} of healthy", size)


def _late(result: CollectiveResult) -> str:
    latest = max(result.ranks, key=lambda rank: rank.slowdown, default=None)
    if latest is None or latest.slowdown < LATE:
        return ""
    times = f"{latest.slowdown:.1f} times as late as the others"
    return f"; rank {latest.rank} is {times}: it or a link near it in the ring is slow"
