"""The collectives' table with nccl-tests' columns and words."""

from __future__ import annotations

from preflight.model.collective import Collective
from preflight.model.report import Report
from preflight.model.trial import DEFAULT, CollectiveResult, TrialResult
from preflight.render.console_writer import finish
from preflight.render.text import Style, clean, fact_text, shorten, wrap

ELEMENT_BYTES = 4  # trials use float32
COLUMNS = (12, 12, 8, 8, 6, 9, 8, 8, 7)
NAMES = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
UNITS = ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")


def render_bench(report: Report, style: Style) -> str:
    """Return one block per collective of the default's trial.

    nccl-tests' last line, the average busbw over the whole sweep, is left out: it mixes 8 B with gigabytes, so it moves
    with the sizes that were asked for and judges nothing.
    """
    lines = _heading(report, style)
    trial = next((each for each in report.trials if each.candidate == DEFAULT), None)
    if trial is None:
        return finish([*lines, "# no trial ran"], style)
    if trial.problem:
        lines += wrap(clean(f"{trial.outcome.value}: {trial.problem}"), style.width, "# ")
    for collective in Collective:
        results = [each for each in trial.results if each.collective is collective]
        if results:
            lines += ["#", f"# {collective.value}", _row(NAMES, "#"), _row(UNITS, "#")]
            lines += [_line(each, report.world_size) for each in results]
    return finish([*lines, *_footer(trial)], style)


def _heading(report: Report, style: Style) -> list[str]:
    ran = f"preflight {report.preflight_version} bench: {report.world_size} ranks, backend {report.backend}"
    texts = [
        f"{ran}, profile {report.profile}",
        "time: median over the repetitions of the slowest rank; all_reduce and broadcast in place; all data checked",
    ]
    if report.backend == "gloo":
        texts.insert(0, "CPU path: gloo; no GPU and no NCCL was tried.")
    if report.simulated:
        texts.insert(0, f"SIMULATED: backend {report.backend}; nothing here is about a machine.")
    return [part for text in texts for part in wrap(clean(text), style.width, "# ")]


def _footer(trial: TrialResult) -> list[str]:
    wrong = sum(each.wrong_elements for each in trial.results)
    all_right = wrong == 0 and all(each.verified for each in trial.results)
    if not trial.results:
        return ["#", "# Out of bounds values : not checked, nothing was timed"]
    return ["#", f"# Out of bounds values : {wrong} {'OK' if all_right else 'FAILED'}"]


def _line(result: CollectiveResult, world_size: int) -> str:
    reduces = result.collective in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
    # nccl-tests counts what one rank sends (all_gather) or receives (reduce_scatter), though the size is the total.
    per_rank = result.collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)
    count = result.size_bytes // ELEMENT_BYTES // (max(1, world_size) if per_rank else 1)
    root = "0" if result.collective is Collective.BROADCAST else "-1"
    rates = [fact_text(rate, "{:.2f}".format, gap="N/A") for rate in (result.algbw_gb_s, result.busbw_gb_s)]
    time = fact_text(result.median_us, lambda us: f"{us:.1f}" if us < 1e6 else f"{us:.0f}", gap="N/A")
    wrong = str(result.wrong_elements) if result.verified or result.wrong_elements else "N/A"
    cells = (str(result.size_bytes), str(count), "float", "sum" if reduces else "none", root, time, *rates, wrong)
    return _row(cells, "")


def _row(cells: tuple[str, ...], start: str) -> str:
    text = "".join(shorten(cell, width).rjust(width) for cell, width in zip(cells, COLUMNS, strict=True))
    return start + text[len(start) :]
