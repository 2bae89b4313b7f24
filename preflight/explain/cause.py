"""The data types of a cause: the log texts that show the cause, the causes that it outranks, and the remedy."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.error_texts import TEXTS
from preflight.model.explanation import Confidence
from preflight.model.nccl_diagnostics import unusual


@dataclass(frozen=True, slots=True)
class Sign:
    """A text that a library or another program prints, and that indicates a cause.

    `means` says in words what the text shows. `pattern` is matched as bytes by a linear-time engine and again by `re`.
    The pattern must therefore have no look-around and no nested repetition.
    """

    name: str
    authority: Authority
    means: str
    pattern: str


def shared(authority: Authority, *names: str) -> tuple[Sign, ...]:
    """Return the texts `names` of `model/error_texts.py`, which other packages use too, as `Sign` records."""
    return tuple(Sign(name, authority, TEXTS[name].means, TEXTS[name].pattern) for name in names)


@dataclass(frozen=True, slots=True)
class Claim:
    """A cause that the logs support, as a `judge` function returns it.

    `events` are the evidence, the most important first. `because` says why they support the cause. `verdict` is the
    headline. `detail` has values for the function `remedy` of the same cause.
    """

    authority: Authority
    events: tuple[Event, ...]
    confidence: Confidence
    because: str
    verdict: str
    detail: tuple[str, ...] = ()

    @property
    def is_warning(self) -> bool:
        """Return whether all of the evidence comes from Python warnings."""
        return bool(self.events) and all(event.is_warning for event in self.events)


class Remedy:
    """The steps to take for a cause, the environment lines that it justifies, and a way to confirm it.

    If the way to confirm the cause depends on the log, `confirm_with` replaces `Cause.confirm_with`.
    """

    def __init__(self, *steps: str, env: tuple[tuple[str, str], ...] = (), confirm_with: str = "") -> None:
        self.steps = steps
        self.env = env
        self.confirm_with = confirm_with


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a cause: the pattern of a library's or adapter's error text, with its own headline and steps."""

    words: str  # a regular expression, searched in the lines
    verdict: str
    steps: tuple[str, ...]


def variant_in(variants: tuple[Variant, ...], *texts: str) -> Variant:
    """Return the first variant whose pattern (`words`) matches one of the texts.

    The variants start with the most specific one. The last variant fits any text.
    """
    return next(each for each in variants if any(re.search(each.words, text) for text in texts))


# Looks at all that the logs hold, and at the cause's own events of the highest authority, the earliest first: at least
# one, except in a cause that infers.
Judge = Callable[[LogEvidence, tuple[Event, ...]], Claim | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A possible cause of a failure, as one file of `causes/` defines it.

    `outranks` names causes that this cause precedes although their `Authority` may be higher.
    """

    id: str = ""  # the name of its file
    promise: str  # what it means, in words for a reader who has never heard of NCCL
    signs: tuple[Sign, ...] = ()
    judge: Judge
    remedy: Callable[[LogEvidence, Claim], Remedy]
    confirmed_if: str  # a clause: what the reader would observe
    confirm_with: str
    infers: bool = False  # judges even if none of its signs is in the log
    outranks: tuple[str, ...] = ()


@functools.cache
def all_causes() -> tuple[Cause, ...]:
    """Return every cause, one per file of `causes/`, sorted by name."""
    package = importlib.import_module("preflight.explain.causes")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(replace(importlib.import_module(f"{package.__name__}.{name}").CAUSE, id=name) for name in names)


def fixed(
    *steps: str, env: tuple[tuple[str, str], ...] = (), then: Callable[[LogEvidence], tuple[str, ...]] = lambda _: ()
) -> Callable[[LogEvidence, Claim], Remedy]:
    """Return a `remedy` function that gives the same `steps` and lines `env` for any log; `then` may add steps."""
    return lambda evidence, _claim: Remedy(*steps, *then(evidence), env=env)


def by_signs(verdict: str) -> Judge:
    """Return a `judge` function that names its cause, at high confidence, if a log line matches a pattern of the cause.

    In `verdict`, the first sentence of the answer, `{who}` becomes "rank 3", "ranks 0, 4" or "a rank", and `{host}`
    becomes " on HOST" or nothing.
    """

    def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
        because = "the log says so explicitly"
        return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(verdict, events))

    return judge


def by_nccl(evidence: LogEvidence, events: tuple[Event, ...], verdict: str) -> Claim | None:
    """Return the claim that an anomaly which NCCL's own diagnostics report caused timeouts.

    Return None if no rank timed out. Timeouts are required because healthy runs also have slow cards and variables that
    differ. `events` are the lines of NCCL's diagnostics. In `verdict`, the first sentence of the answer, `{said}`
    becomes NCCL's words.
    """
    timeouts = evidence.timeouts()
    if not timeouts:
        return None
    said = unusual(events[0].text).partition(" in comm 0x")[0].rstrip(". ")
    because = "NCCL's own diagnostics say so, and the timeouts do not name what the ranks waited for"
    proof = (*events[:3], *timeouts[:1])
    return Claim(Authority.REFINED_TIMEOUT, proof, Confidence.MEDIUM, because, verdict.replace("{said}", said))


def fill_in(verdict: str, events: tuple[Event, ...]) -> str:
    """Return the sentence `verdict` with `{who}` and `{host}` replaced by the ranks and the host of `events`.

    At most four ranks are named. `{host}` becomes "" unless all events are from one host.
    """
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
