"""The problems that the checks found, the inconclusive checks, and the list of all checks."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.finding import (
    CheckDescription,
    CheckOutcome,
    Finding,
    RanCheck,
    Severity,
    SkippedCheck,
    Unseen,
)
from preflight.show.console_writer import page
from preflight.show.document import BLANK, Block, Findings, Heading, Text, grouped, item, listed, section
from preflight.show.text import Style

MOST_NAMED = 6
FOUND_WORDS = {Severity.FAIL: "failed", Severity.WARN: "warned", Severity.INFO: "noted"}
OUTCOME_WORDS = {
    CheckOutcome.COULD_NOT_LOOK: "inconclusive",
    CheckOutcome.NOT_APPLICABLE: "not applicable",
    CheckOutcome.NOT_RUN: "not run",
}


def outcome_word(outcome: CheckOutcome) -> str:
    """Return the outcome of a check as text, such as `not run`, `inconclusive` or `passed`."""
    return OUTCOME_WORDS.get(outcome, outcome.value)


def findings_section(findings: tuple[Finding, ...]) -> list[Block]:
    """Return the problems found, the most severe problem first."""
    return [Heading("Findings"), Findings(worst_first(findings))] if findings else []


def worst_first(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the problems found in order of severity: failures, then warnings, then information."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda each: order.index(each.severity)))


def could_not_look(skipped: Sequence[SkippedCheck]) -> dict[str, list[str]]:
    """Return the inconclusive checks in `skipped`, as {reason: names of checks}.

    If a check crashed, the reason says that this is a defect of preflight.
    """
    defect = "a defect in preflight, please report: "
    unseen = (each for each in skipped if each.outcome is not CheckOutcome.NOT_RUN)
    return grouped((f"{defect if each.crashed else ''}{each.reason}", each.check) for each in unseen)


def silent_sections(ran: Sequence[RanCheck]) -> list[Block]:
    """Return two sections: the checks that were not run, and the checks that did not apply.

    Both are grouped by reason.
    """
    return [
        *section("Not run", *_by_reason(ran, CheckOutcome.NOT_RUN)),
        *section("Not applicable", *_by_reason(ran, CheckOutcome.NOT_APPLICABLE)),
    ]


def _by_reason(ran: Sequence[RanCheck], outcome: CheckOutcome) -> list[Block]:
    alike = grouped((each.reason, each.check) for each in ran if each.outcome is outcome)
    return [item(f"{listed(names, MOST_NAMED)}: {reason}") for reason, names in alike.items()]


def outcome_counts(ran: Sequence[RanCheck]) -> dict[CheckOutcome, int]:
    """Return the number of checks with each outcome."""
    return {outcome: sum(each.outcome is outcome for each in ran) for outcome in CheckOutcome}


def counts_text(ran: Sequence[RanCheck], findings: Sequence[Finding]) -> str:
    """Return the counts of the checks as text, such as `52 passed, 4 warned, 1 inconclusive`.

    A check counts by its most severe problem.
    """
    worst = {each.check: each.severity for each in reversed(worst_first(tuple(findings)))}
    counts = outcome_counts(ran)
    found = {word: sum(each is severity for each in worst.values()) for severity, word in FOUND_WORDS.items()}
    others = {OUTCOME_WORDS[outcome]: counts[outcome] for outcome in OUTCOME_WORDS}
    words = [f"{count} {word}" for word, count in [*found.items(), *others.items()] if count]
    return ", ".join([f"{counts[CheckOutcome.PASSED]} passed", *words])


def counts_line(ran: Sequence[RanCheck], findings: Sequence[Finding]) -> list[Block]:
    """Return the line that counts the checks. The result is [] if an old report has no list of checks."""
    return [BLANK, Text(counts_text(ran, findings), hang=len("Checks: "), label="Checks: ")] if ran else []


UNSEEN_WORDS = {
    Unseen.NOTHING: "it is noted; the verdict does not change",
    Unseen.ACCEPTANCE: "`--accept` does not accept the node",
    Unseen.ANSWER: "the verdict is unknown",
}


def list_checks(checks: Sequence[CheckDescription], style: Style) -> str:
    """Return one line for each check: its name and its description, cut to the width of the terminal."""
    widest = max(len(check.name) for check in checks)
    lines: list[Block] = [Text(check.promise, label=f"{check.name:{widest}}  ", most_lines=1) for check in checks]
    last = f"{len(checks)} checks; `preflight checks NAME` explains one, and -v explains all"
    return page([*lines, BLANK, Text(last)], style)


def render_checks(checks: Sequence[CheckDescription], style: Style, is_list: bool = True) -> str:
    """Return a description of each check: what it verifies, which part may be at fault, and its limits.

    `is_list` means that `checks` has all checks.
    """
    first = (
        f"{len(checks)} checks. Each passes, finds something, is inconclusive, does not apply or is not run, and says "
        f"which and why."
    )
    blocks: list[Block] = [Text(first), BLANK] if is_list else []
    for check in checks:
        blocks += [
            Text(f"[{check.blame.value}]", label=f"{check.name}  ", label_tone="bold"),
            Text(check.promise, 2),
            Text(f"reads: {', '.join(check.reads) or 'the trials'}", 2, 4),
            Text(f"can't see: {check.blind_to}", 2, 4),
            Text(f"if it is inconclusive: {UNSEEN_WORDS[check.unseen]}", 2, 4),
            BLANK,
        ]
    return page(blocks, style)
