"""Read a policy file, and apply the policy to the problems found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from preflight.errors import MalformedInput, UsageError
from preflight.judge.expectations import EXPECTED
from preflight.model.collective import Collective
from preflight.model.finding import Blame, Finding, Severity
from preflight.model.parsing import guess, parse_duration_s
from preflight.model.policy import Floor, Level, Lookback, Policy, Waiver
from preflight.model.toml import read_toml

TABLES = ("checks", "waivers", "expect", "lookback", "floors")
LOOKBACK = ("xids", "link_flaps")
SIZE = re.compile(r"([a-z_]+) (\d{1,6}) (B|KiB|MiB|GiB)", re.ASCII)
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SEVERITY = {Level.FATAL: Severity.FAIL, Level.WARN: Severity.WARN, Level.INFO: Severity.INFO}


def parse_policy(text: str, source: str, checks: Collection[str], today: str) -> Policy:
    """Return the policy in a TOML text.

    `source` names the text in messages. The date `today` (YYYY-MM-DD) decides which waivers have expired. Raise
    MalformedInput with the first unknown key, check or value.
    """
    # `checks` are the names of all checks. The tables are [checks], [[waivers]], [expect], [lookback] and [floors].
    tables = read_toml(text, source)
    _only(tables, TABLES, source, "table")
    return Policy(
        source,
        today,
        tuple(_levels(_table(tables, "checks", source), source, checks)),
        tuple(_waivers(tables.get("waivers", []), source, checks)),
        _expectations(_table(tables, "expect", source), source),
        tuple(_floors(_table(tables, "floors", source), source)),
        _lookback(_table(tables, "lookback", source), source),
    )


def apply_policy(findings: Sequence[Finding], policy: Policy) -> tuple[Finding, ...]:
    """Return the problems found, with the severities that the policy demands.

    A waived problem becomes a note, and a note never becomes more severe.
    """
    # If a check is fatal, its warnings become failures. A milder level lowers the severity.
    levels = dict(policy.levels)
    judged = []
    for finding in findings:
        changed, level = finding, levels.get(finding.check)
        if level is not None and finding.severity is not Severity.INFO:
            changed = _at(finding, SEVERITY[level], f"policy {policy.source}: {level.value}")
        waivers = (each for each in policy.waivers if policy.today <= each.until and _meets(each, finding))
        waiver = next(waivers, None)
        if waiver is not None and changed.severity is not Severity.INFO:
            words = f"until {waiver.until}: {waiver.reason}"
            changed = replace(_at(changed, Severity.INFO, f"waived {words}"), waived=words)
        judged.append(changed)
    return (*judged, *_expired(judged, policy), *_without_effect(findings, policy))


def _at(finding: Finding, severity: Severity, why: str) -> Finding:
    if severity is finding.severity:
        return finding
    words = f"{finding.problem} [{why}; was {finding.severity.value}]"
    return replace(finding, severity=severity, problem=words)


def _meets(waiver: Waiver, finding: Finding) -> bool:
    return waiver.check == finding.check and waiver.subject in finding.subject


def _expired(findings: Sequence[Finding], policy: Policy) -> Iterator[Finding]:
    for waiver in policy.waivers:
        if policy.today > waiver.until and any(_meets(waiver, each) for each in findings):
            problem = f"the waiver ended on {waiver.until} ({waiver.reason}), but the problem still exists"
            fix = "repair the problem, or set a later end in the waiver"
            yield _of_policy("policy-waiver-expired", policy, waiver.check, problem, fix)


def _without_effect(findings: Sequence[Finding], policy: Policy) -> Iterator[Finding]:
    notes = {each.check for each in findings if each.severity is Severity.INFO}
    for check, level in policy.levels:
        if check in notes and level is not Level.INFO:
            problem = f'"{level.value}" changes FAIL and WARN; the finding here is INFO and stays INFO'
            yield _of_policy("policy-level-unused", policy, check, problem, "")


def _of_policy(name: str, policy: Policy, check: str, problem: str, fix: str) -> Finding:
    """Return a finding that blames the policy file for its entry about one check."""
    return Finding(name, Blame.CONFIGURATION, Severity.INFO, f"{policy.source} {check}", problem, fix, ())


def _levels(table: dict[str, Any], source: str, checks: Collection[str]) -> Iterator[tuple[str, Level]]:
    for name, value in table.items():
        _known_check(name, f"{source}: [checks]", checks)
        try:
            yield name, Level(value)
        except ValueError:
            raise MalformedInput(f'{source}: [checks] {name}: write "fatal", "warn" or "info"') from None


def _waivers(entries: object, source: str, checks: Collection[str]) -> Iterator[Waiver]:
    if not isinstance(entries, list):
        raise MalformedInput(f"{source}: waivers: write [[waivers]] for each")
    for number, entry in enumerate(entries, 1):
        where = f"{source}: waiver {number}"
        if not isinstance(entry, dict):
            raise MalformedInput(f"{where}: write [[waivers]] with check, reason and until")
        _only(entry, ("check", "subject", "reason", "until"), where, "key")
        check, reason, subject = entry.get("check"), entry.get("reason"), entry.get("subject", "")
        if not isinstance(check, str) or not isinstance(subject, str):
            raise MalformedInput(f"{where}: check (and subject, if given) must be text")
        _known_check(check, where, checks)
        if not isinstance(reason, str) or not reason.strip():
            raise MalformedInput(f"{where}: it needs a reason")
        yield Waiver(check, subject, reason.strip(), _day(entry.get("until"), where))


def _day(value: object, where: str) -> str:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            value = None
    if type(value) is not date:  # a TOML date-time is one, too, but says an hour that would not be kept
        raise MalformedInput(f"{where}: it needs an end: until = 2027-01-31")
    return value.isoformat()


def _expectations(table: dict[str, Any], source: str) -> dict[str, Any]:
    _only(table, tuple(EXPECTED), f"{source}: [expect]", "key")
    for name, value in table.items():
        if not EXPECTED[name].kind.takes(value):
            raise MalformedInput(f"{source}: [expect] {name}: {EXPECTED[name].kind.words}")
    return table


def _lookback(table: dict[str, Any], source: str) -> Lookback:
    where = f"{source}: [lookback]"
    _only(table, LOOKBACK, where, "key")
    seconds = {}
    for name, value in table.items():
        try:
            seconds[name] = parse_duration_s(value if isinstance(value, str) else "", name)
        except UsageError:
            raise MalformedInput(f'{where} {name}: write "24h", "90m", at most 7 days ("168h")') from None
    return Lookback(**seconds)


def _floors(table: dict[str, Any], source: str) -> Iterator[Floor]:
    for name, value in table.items():
        match = SIZE.fullmatch(name)
        if match is None or match[1] not in {each.value for each in Collective}:
            raise MalformedInput(f'{source}: [floors] {name}: write "all_reduce 1 GiB" = GB/s')
        if type(value) not in (int, float) or not 0 < value < 1e6:
            raise MalformedInput(f"{source}: [floors] {name}: give GB/s above 0")
        yield Floor(Collective(match[1]), int(match[2]) * UNITS[match[3]], float(value))


def _table(tables: dict[str, Any], name: str, source: str) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise MalformedInput(f"{source}: {name}: write [{name}] with a key for each")
    return table


def _only(table: dict[str, Any], names: Sequence[str], where: str, what: str) -> None:
    for name in table:
        if name not in names:
            raise MalformedInput(f"{where}: unknown {what} {name!r}; there are {', '.join(names)}")


def _known_check(name: str, where: str, checks: Collection[str]) -> None:
    if name not in checks:
        raise MalformedInput(f"{where}: there is no check {name!r}; {guess(name, checks)}")
