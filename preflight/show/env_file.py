"""The `.env` file that the user sources before the job starts."""

from __future__ import annotations

from preflight.model.facts import SETTABLE
from preflight.model.launchers import NODE_COUNTS
from preflight.model.report import Advice, Report
from preflight.show.settings import evidence_of, export, shell_quote
from preflight.show.text import clean, wrap
from preflight.show.verdict import waivers

WIDTH = 120
NODES = "".join(f"${{{name}:-" for name in NODE_COUNTS) + "1" + "}" * len(NODE_COUNTS)
ON_ONE_NODE = f'if [ "{NODES}" = 1 ]; then'
TIMEOUT_READERS = {
    "PREFLIGHT_PG_TIMEOUT_S": "Seconds for a collective: dist.init_process_group(..., timeout=preflight.pg_timeout()).",
    "PREFLIGHT_INIT_TIMEOUT_S": "Seconds until all ranks have joined: torchrun --rdzv-conf join_timeout=...",
    "DEEPSPEED_TIMEOUT": "Minutes, read by DeepSpeed; never shorter than DeepSpeed's own default.",
    "TORCH_FR_BUFFER_SIZE": "This torch records no collectives by default: keep the last ones for `preflight explain`.",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": (
        "This torch records no collectives by default: keep the last ones for `preflight explain`."
    ),
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "Write that record to /tmp/nccl_trace_rank_N when a collective times out.",
}


def render_env(report: Report) -> str:
    """Return the text of the `.env` file for sh, bash and zsh.

    The file has only comments if no settings are recommended.
    """
    advice = report.advice
    lines = _header(report)
    lines += _comment(advice.reason)
    if advice.gpu_env:
        lines += ["", *_comment(f"The GPUs that were tried: {', '.join(advice.gpus)}.")]
        lines += [_exported(name, value) for name, value in advice.gpu_env]
    names = [name for name, _ in advice.env] + [name for name in advice.unset if name not in dict(advice.env)]
    by_node = _by_node(advice)
    lines += by_node
    for name in names:
        if name not in advice.one_node_only and not (by_node and name in dict(advice.env)):
            lines += ["", *_setting(advice, name, "")]
    local = [name for name in names if name in advice.one_node_only]
    settable = [name for name in local if SETTABLE.fullmatch(name)]
    if settable:
        lines += ["", "# Measured on one node: several nodes may use another network.", ON_ONE_NODE]
        for name in settable:
            lines += _setting(advice, name, "  ")
        lines.append("fi")
    for name in local:
        if name not in settable:
            lines += ["", *_setting(advice, name, "")]
    lines += _timeouts(advice)
    return "\n".join(lines) + "\n"


def _header(report: Report) -> list[str]:
    hosts = ", ".join(node.host for node in report.nodes) or "an unknown host"
    ran = f"Backend {report.backend}, {report.world_size} ranks, profile {report.profile}"
    texts = [
        *(["SIMULATED: from a simulated backend; not valid for any machine."] if report.simulated else []),
        f"Written by preflight {report.preflight_version} at {report.created_at} on {hosts}.",
        f"{ran}; verdict {report.verdict.value}.",
        *(f"The site's policy lets pass: {waiver}." for waiver in waivers(report)),
    ]
    return [line for text in texts for line in _comment(text)]


def _by_node(advice: Advice) -> list[str]:
    """Return shell code that selects each node's settings by the node's name.

    The file is the same on all nodes, so that the nodes can share the file.
    """
    if not advice.nodes:
        return []
    hosts: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for node in advice.nodes:
        hosts.setdefault(node.env, []).append(node.host)
    names = sorted({name for env in hosts for name, _ in env})
    evidence = dict.fromkeys(text for about, text in advice.evidence if about in names)
    lines = ["", *_comment("What nodes set differs (interfaces have other names); each takes its own.")]
    lines += [line for text in evidence for each in text.splitlines() for line in _comment(each)]
    lines.append('case "$(uname -n)" in')
    for env, who in hosts.items():
        lines.append(f"  {'|'.join(map(shell_quote, dict.fromkeys(who)))})")
        lines += [f"    export {name}={shell_quote(value)}" for name, value in env if SETTABLE.fullmatch(name)]
        lines.append("    ;;")
    warning = shell_quote("preflight.env: this node was not among those that were tried")
    return [*lines, "  *)", f"    echo {warning} >&2", "    ;;", "esac"]


def _setting(advice: Advice, name: str, indent: str) -> list[str]:
    reasons = [reason for text in evidence_of(advice, name) for reason in text.splitlines()]
    lines = [indent + line for reason in reasons for line in _comment(reason)]
    if not SETTABLE.fullmatch(name):
        return [*lines, *_comment(f"{indent}{name}: not a name that a shell can set or unset")]
    value = dict(advice.env).get(name)
    command = f"unset {name}" if value is None else export(name, value)
    return [*lines, indent + command]


def _timeouts(advice: Advice) -> list[str]:
    """Return the lines that set the timeouts, each with the programs that read the timeout.

    The timeouts do not affect NCCL or gloo.
    """
    lines = ["", *_comment(f"The safe timeout: {advice.timeout_reason}.")] if advice.timeout_env else []
    for name, value in advice.timeout_env:
        lines += [*_comment(TIMEOUT_READERS.get(name, "")), _exported(name, value)]
    return lines


def _exported(name: str, value: str) -> str:
    """Return the command that sets a variable, or a comment if no shell can set a variable of this name."""
    return export(name, value) if SETTABLE.fullmatch(name) else f"# {clean(name)[:80]}: not a name that a shell can set"


def _comment(text: str) -> list[str]:
    return wrap(clean(text), WIDTH, "# ")
