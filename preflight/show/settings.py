"""The recommended settings as sections and commands, with the evidence for each setting."""

from __future__ import annotations

from preflight.model.facts import Gap
from preflight.model.report import Advice, Report, Verdict
from preflight.model.units import capitalized
from preflight.show.document import Block, Heading, Text, item, note

ON_ONE_NODE = "Only one node was tested, so use the network settings only for jobs on one node."


def shell_quote(value: str) -> str:
    """Return the value in single quotes, which prevent every expansion by the shell."""
    return "'" + value.replace("'", "'\\''") + "'"


def export(name: str, value: str) -> str:
    """Return the shell command that sets a variable, such as `export NAME='value'`."""
    return f"export {name}={shell_quote(value)}"


def commands(advice: Advice) -> list[str]:
    """Return the shell commands that apply the advice, with `export` and `unset`."""
    exports = [export(name, value) for name, value in (*advice.gpu_env, *advice.env)]
    return exports + [f"unset {name}" for name in advice.unset]


def evidence_of(advice: Advice, name: str) -> list[str]:
    """Return the evidence in `advice` for the setting `name`."""
    return [text for about, text in advice.evidence if about == name]


def recommendation_section(report: Report, env_path: str) -> list[Block]:
    """Return the section on the recommended settings, the safe timeout and the next command."""
    advice = report.advice
    settings = [(export(name, value), name) for name, value in advice.env]
    settings += [(f"unset {name}", name) for name in advice.unset]
    ready = report.verdict in (Verdict.READY, Verdict.READY_WITH_ENV)
    reason = f"Set nothing: {advice.reason}" if ready and not settings else advice.reason
    blocks: list[Block] = [Heading("Recommendation"), note(capitalized(reason))]
    blocks += _settings(advice, settings)
    if not isinstance(advice.pg_timeout_s, Gap) and not isinstance(advice.init_timeout_s, Gap):
        reason = advice.timeout_reason
        limits = f"{advice.pg_timeout_s} s for collectives, {advice.init_timeout_s} s for the job's start"
        more = "For a model and its checkpoints, compute the timeouts with `preflight timeout --params N`."
        blocks.append(Text(f"{limits}. {capitalized(reason)}. {more}", 2, 4, label="Safe timeout: "))
    if advice.one_node_only:
        blocks.append(note(ON_ONE_NODE))
    if settings and ready:
        blocks.append(Text(f"source {quoted_path(env_path)}", 2, 8, label="Next: "))
    return blocks


def _settings(advice: Advice, settings: list[tuple[str, str]]) -> list[Block]:
    """Return the commands, each with its own evidence.

    Evidence that all commands share is printed once, below the commands.
    """
    each = [[line for text in evidence_of(advice, name) for line in text.splitlines()] for _, name in settings]
    shared = [line for line in each[0] if all(line in others for others in each[1:])] if len(each) > 1 else []
    blocks: list[Block] = []
    for (command, _), evidence in zip(settings, each, strict=True):
        own = [line for line in evidence if line not in shared]
        blocks += [item(command, 4), *_evidence(own, several=len(evidence) > 1)]
    if any(len(evidence) > len(shared) for evidence in each) and shared:
        blocks.append(Text("for each of these settings", 4))
    return blocks + _evidence(shared, several=len(shared) > 1)


def _evidence(lines: list[str], *, several: bool) -> list[Block]:
    return [Text(line, 6, 8 if several else 6) for line in lines]


def quoted_path(path: str) -> str:
    """Return the path for a shell command, with quotes only if the path needs quotes."""
    plain = path and all(char.isalnum() or char in "._-/+,@:" for char in path) and path.isascii()
    return path if plain else shell_quote(path)
