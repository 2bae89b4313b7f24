"""What a cause is: the words by which it is known, what it outranks, and what to do about it."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from preflight.explain.event import Authority, Event
from preflight.model.explanation import Confidence

if TYPE_CHECKING:
    from preflight.explain.seen import Seen


@dataclass(frozen=True, slots=True)
class Sign:
    """Words that a library prints.

    `pattern` is matched as bytes by a linear-time engine and again by `re`: no look-around, no nested repetition.
    """

    name: str
    pattern: str
    authority: Authority
    means: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A cause that says "it was me", with its proof."""

    authority: Authority
    events: tuple[Event, ...]
    confidence: Confidence
    because: str
    verdict: str
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do, one step each, and the environment lines that the cause justifies."""

    steps: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """One file of `causes/`; `outranks` holds whatever the order of authority alone would get wrong."""

    id: str
    promise: str  # what it means, in words for somebody who has never heard of NCCL
    signs: tuple[Sign, ...]
    judge: Callable[[Seen], Claim | None]
    remedy: Callable[[Seen, Claim], Remedy]
    needs: str  # what confirms it
    confirm_with: str
    outranks: frozenset[str] = field(default_factory=frozenset)


@functools.cache
def all_causes() -> tuple[Cause, ...]:
    """Return every cause, one per file of `causes/`, by name."""
    package = importlib.import_module("preflight.explain.causes")
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    return tuple(sorted((module.CAUSE for module in modules), key=lambda cause: cause.id))


def fixed(*steps: str, env: Iterable[tuple[str, str]] = ()) -> Callable[[Seen, Claim], Remedy]:
    """Return a remedy that does not depend on the log."""
    remedy = Remedy(steps, tuple(env))
    return lambda _seen, _claim: remedy


def by_signs(
    cause_id: str,
    verdict: str,
    because: str = "the log says so in so many words",
    confidence: Confidence = Confidence.HIGH,
) -> Callable[[Seen], Claim | None]:
    """Return a judge that claims by the earliest of the cause's signs of the highest authority.

    `{who}` in the verdict becomes "rank 3", "ranks 0, 4" or "a rank"; `{host}` " on HOST" or nothing.
    """

    def judge(seen: Seen) -> Claim | None:
        events = seen.best(cause_id)
        if not events:
            return None
        return Claim(events[0].authority, events, confidence, because, said(verdict, events))

    return judge


def said(verdict: str, events: tuple[Event, ...]) -> str:
    """Return the sentence with who and where filled in; ranks of the earliest moment first, at most four."""
    ranks = list(dict.fromkeys(e.rank for e in events if e.rank))
    if not ranks:
        who = "a rank"
    elif len(ranks) == 1:
        who = f"rank {ranks[0]}"
    else:
        more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
        who = f"ranks {', '.join(ranks[:4])}{more}"
    hosts = list(dict.fromkeys(e.host for e in events if e.host))
    where = f" on {hosts[0]}" if len(hosts) == 1 else ""
    return verdict.replace("{who}", who).replace("{host}", where)
