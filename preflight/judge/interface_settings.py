"""Find the network interfaces that the variables of NCCL and gloo select on this node.

The two libraries use different grammars. See docs/dev/nccl-facts.md, sections 2.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable

from preflight.judge.nccl_settings import Remark
from preflight.model.finding import Severity

MOST_NAMED = 8


def nccl_matches(value: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the interfaces in `names` that NCCL selects if NCCL_SOCKET_IFNAME is `value`."""
    # The value lists prefixes of names. After `=`, the value lists full names. A `^` in front selects all other
    # interfaces.
    is_excluding, rest = value.startswith("^"), value.removeprefix("^")
    is_exact, rest = rest.startswith("="), rest.removeprefix("=")
    words = [word for word in rest.split(",") if word]

    def is_named(name: str) -> bool:
        return any(name == word if is_exact else name.startswith(word) for word in words)

    return tuple(name for name in names if is_named(name) is not is_excluding)


def nccl_remark(value: str, names: tuple[str, ...]) -> Remark | None:
    """Return the problem with NCCL_SOCKET_IFNAME=`value`, or None if the value has no problem.

    `names` are the interfaces of the node.
    """
    if not value:
        return None
    if len(value) == 1:
        return Remark(Severity.WARN, "has one character, so NCCL ignores it", "name an interface, or unset it")
    if not nccl_matches(value, names):
        problem = "matches no interface of this node, so NCCL fails"
        return Remark(Severity.WARN, problem, f"name one of {_listed(names)}, or unset it")
    return None


def gloo_remark(value: str, names: tuple[str, ...]) -> Remark | None:
    """Return the problem with GLOO_SOCKET_IFNAME=`value`, or None if the value has no problem.

    `names` are the interfaces of the node. gloo accepts only full names, separated by commas.
    """
    if not value:
        return None
    if value[0] in "=^":
        problem = f"starts with {value[0]!r}, which only NCCL understands; gloo reads it as part of the name and fails"
        return Remark(Severity.WARN, problem, f"write whole names only: {_listed(names)}")
    missing = [word for word in value.split(",") if word not in names]
    if not missing:
        return None
    is_prefix = any(name.startswith(missing[0]) for name in names if missing[0])
    problem = (
        f"names {missing[0]!r}, no interface of this node{' (gloo knows no prefixes)' if is_prefix else ''}: gloo fails"
    )
    return Remark(Severity.WARN, problem, f"name one of {_listed(names)}, or unset it")


def _listed(names: tuple[str, ...]) -> str:
    shown = [name for name in names if name != "lo"][:MOST_NAMED]
    return ", ".join(shown) or "the node's interfaces (the node has only lo)"
