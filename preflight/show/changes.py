"""The page of `preflight diff`: the differences from an earlier report, the most suspicious first."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.change import Change, Changes, NodeChanges
from preflight.model.report import Report
from preflight.model.units import counted, rate_text, size_text
from preflight.show.document import BLANK, Block, Heading, Text, answer_line
from preflight.show.screen import ALL, Page
from preflight.show.text import line, rfc3339

ANSWERS = {0: ("NOTHING THAT MATTERS", "green"), 1: ("CHANGED", "red"), 3: ("NOT COMPARED", "yellow")}
MOST_NAMED = 4
MAY, RARELY = "may matter", "rarely matters"
NOTHING = "nothing that preflight reads and that may matter"
SUSPECT = "check or undo the first change above, then run `preflight check` again"
NO_SUSPECT = "look for another cause: preflight found no important change of hardware, software or settings"
NO_FACT = (
    "measure again with `preflight check --profile standard`, because no change that preflight can read explains the "
    "loss"
)


def changes_page(difference: Changes) -> Page:
    """Return the page of `preflight diff`: changes that matter, new problems, and slower collectives.

    Changes that rarely matter are only counted, unless -v is given.
    """
    word, tone = ANSWERS[difference.exit_code]
    answer = answer_line(word, tone, _summary(difference))
    matter = [(node, [each for each in node.changes if each.matters]) for node in difference.nodes]
    groups: list[list[Block]] = [
        [_text(each)] for node, found in matter for each in change_lines(found, _host(node, difference))
    ]
    slower = difference.slower
    foot = [("New", line(each)) for each in difference.new_findings[:MOST_NAMED]]
    if slower:
        first = max(slower, key=lambda each: each.before_gb_s / max(each.now_gb_s, 1e-9))
        speeds = f"{rate_text(first.before_gb_s)} -> {rate_text(first.now_gb_s)}"
        more = f", and {counted(len(slower) - 1, 'other size')}" if slower[1:] else ""
        foot.append(("Slower", f"{first.collective} of {size_text(first.size_bytes)}: {speeds}{more}"))
    if difference.not_compared:
        foot.append(
            ("Left out", f"in only one of the reports: {', '.join(map(line, difference.not_compared[:MOST_NAMED]))}")
        )
    others = sum(not each.matters for node in difference.nodes for each in node.changes)
    if others:
        foot.append(("Others", f"{counted(others, 'change')} that rarely matter{'s' * (others == 1)} ({ALL})"))

    def whole() -> list[Block]:
        blocks: list[Block] = [answer]
        for node in difference.nodes:
            host = _host(node, difference) or line(node.host)
            for title, wanted in ((MAY, True), (RARELY, False)):
                found = [_text(each) for each in change_lines([c for c in node.changes if c.matters is wanted])]
                blocks += [Heading(f"{host}: {title}"), *found] if found else []
        return [*blocks, BLANK, *(Text(text, 0, 10, label=name.ljust(10)) for name, text in foot)]

    return Page(answer, [answer], groups, [("Next", _next(difference)), *foot], whole)


def _summary(difference: Changes) -> str:
    since = f" since {rfc3339(difference.since)}" if difference.since else ""
    if not difference.nodes:
        return "no node is in both reports; give two reports that share a node, or two reports with one node each"
    count = sum(each.matters for node in difference.nodes for each in node.changes)
    told = [f"{counted(count, 'change')} that may matter"] if count else ["no change that matters"]
    if difference.new_findings:
        told.append(counted(len(difference.new_findings), "new finding"))
    if difference.slower:
        told.append(f"{counted(len(difference.slower), 'message size')} slower")
    hosts = ", ".join(_host(node, difference) or line(node.host) for node in difference.nodes[:MOST_NAMED])
    return f"{hosts}: {', '.join(told)}{since}"


def _host(node: NodeChanges, difference: Changes) -> str:
    """Return `NAME -> NAME` if two nodes are compared, or the node's name if there are several nodes.

    Otherwise, return "".
    """
    if node.host != node.host_before:
        return f"{line(node.host_before)} -> {line(node.host)}"
    return line(node.host) if len(difference.nodes) > 1 else ""


def since_good(report: Report) -> list[str]:
    """Return a line for each change since the node was last good, or one line that says that nothing changed.

    The result is [] if the report does not say when the node was good.
    """
    return (change_lines(report.changed) or [NOTHING]) if report.good_at else []


def change_lines(changes: Sequence[Change], host: str = "") -> list[str]:
    """Return a line for each change. The line has the name `host`, unless `host` is ""."""
    # Changes that differ only in their subject, such as a GPU, share a line.
    subjects: dict[tuple[str, str, str, str], list[str]] = {}
    for each in changes:
        subjects.setdefault((each.what, each.before, each.now, each.why), []).append(each.subject)
    return [_line(host, named, *values) for values, named in subjects.items()]


def _line(host: str, subjects: Sequence[str], what: str, before: str, now: str, why: str) -> str:
    named = [line(each) for each in subjects if each]
    shown = ", ".join(named[:MOST_NAMED]) + (f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else "")
    where = " ".join(filter(None, (f"{host}:" if host else "", shown, what)))
    return f"{where}: {line(before)} -> {line(now)}{f'; {why}' if why else ''}"


def _text(text: str) -> Text:
    return Text(text, 2, 4, most_lines=3)


def _next(difference: Changes) -> str:
    if not difference.nodes:
        return "`preflight diff GOOD.json NOW.json`"
    if any(each.matters for node in difference.nodes for each in node.changes):
        return SUSPECT
    return NO_FACT if difference.exit_code else NO_SUSPECT
