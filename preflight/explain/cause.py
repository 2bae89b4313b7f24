"""The data types of a cause: the text patterns in the logs, the conclusion, and the repair steps."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.signatures import known_verdict
from preflight.model.error_texts import TEXTS
from preflight.model.explanation import Confidence
from preflight.model.nccl_diagnostics import unusual


@dataclass(frozen=True, slots=True)
class Sign:
    """A text pattern in a log that indicates a cause, and what the text shows (`means`).

    The regular expression `pattern` must have no look-around and no nested repetition.
    """

    # A library or another program prints the text. A linear-time engine matches `pattern`.

    name: str
    authority: Authority
    means: str
    pattern: str


def shared(authority: Authority, *names: str) -> tuple[Sign, ...]:
    """Return the text patterns of `model/error_texts.py` that have the given names, as `Sign` records.

    Other packages also use these patterns.
    """
    return tuple(Sign(name, authority, TEXTS[name].means, TEXTS[name].pattern) for name in names)


@dataclass(frozen=True, slots=True)
class Claim:
    """A conclusion about the cause of a failure, which a `judge` function returns.

    The log lines in `events` support the conclusion, the most important first.
    """

    # `because` says why the lines support the conclusion. `verdict` is the headline. `detail` has values for the
    # `remedy` function of the same cause.

    authority: Authority
    events: tuple[Event, ...]
    confidence: Confidence
    because: str
    verdict: str
    detail: tuple[str, ...] = ()

    @property
    def is_warning(self) -> bool:
        """Return whether all events are Python warnings."""
        return bool(self.events) and all(event.is_warning for event in self.events)


class Remedy:
    """The steps to take for a cause, the environment variables to set, and a way to confirm the cause.

    If `confirm_with` is not empty, it replaces `Cause.confirm_with`.
    """

    def __init__(self, *steps: str, env: tuple[tuple[str, str], ...] = (), confirm_with: str = "") -> None:
        self.steps = steps
        self.env = env
        self.confirm_with = confirm_with


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a cause, for error texts that match the pattern `words`. It has its own headline and steps."""

    words: str  # a regular expression, searched in the lines
    verdict: str
    steps: tuple[str, ...]


def variant_in(variants: tuple[Variant, ...], *texts: str) -> Variant:
    """Return the first variant whose pattern (`words`) matches one of the texts.

    The most specific variant comes first. The last variant matches any text.
    """
    return next(each for each in variants if any(re.search(each.words, text) for text in texts))


# Looks at all that the logs hold, and at the cause's own events of the highest authority, the earliest first: at least
# one, except in a cause that infers.
Judge = Callable[[LogEvidence, tuple[Event, ...]], Claim | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A possible cause of a failure, defined in one file of `causes/`.

    If this cause and a cause in `outranks` both apply, this cause comes first.
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
    """Return all causes, sorted by name.

    Each file of `causes/` defines one cause.
    """
    package = importlib.import_module("preflight.explain.causes")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(replace(importlib.import_module(f"{package.__name__}.{name}").CAUSE, id=name) for name in names)


def fixed(
    *steps: str, env: tuple[tuple[str, str], ...] = (), then: Callable[[LogEvidence], tuple[str, ...]] = lambda _: ()
) -> Callable[[LogEvidence, Claim], Remedy]:
    """Return a `remedy` function that returns the same steps and environment variables for any log.

    The function `then` may add steps that depend on the log.
    """
    return lambda evidence, _claim: Remedy(*steps, *then(evidence), env=env)


def by_signs(verdict: str) -> Judge:
    """Return a `judge` function that reports its cause with high confidence if a log line matches the cause.

    `verdict` is the first sentence of the answer. In this sentence, the ranks replace `{who}` and the host replaces
    `{host}`.
    """
    # `{who}` becomes "rank 3", "ranks 0, 4" or "a rank", and `{host}` becomes " on HOST" or nothing. A row of
    # data/signatures.toml may have a more precise sentence.

    def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
        because = "the log states the cause"
        said = known_verdict(events[0].text) or verdict
        return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(said, events))

    return judge


def by_nccl(evidence: LogEvidence, events: tuple[Event, ...], verdict: str) -> Claim | None:
    """Return the conclusion that a problem reported by NCCL's diagnostics caused the timeouts.

    Return None if no rank timed out. `verdict` is the first sentence of the answer. In this sentence, the text from
    NCCL replaces `{said}`.
    """
    # The result needs a timeout, because healthy runs also have NCCL problems of this kind. `events` are the lines of
    # NCCL's diagnostics.
    timeouts = evidence.timeouts()
    if not timeouts:
        return None
    said = unusual(events[0].text).partition(" in comm 0x")[0].rstrip(". ")
    because = "NCCL's own diagnostics say so, and the timeouts do not name what the ranks waited for"
    proof = (*events[:3], *timeouts[:1])
    return Claim(Authority.REFINED_TIMEOUT, proof, Confidence.MEDIUM, because, verdict.replace("{said}", said))


def fill_in(verdict: str, events: tuple[Event, ...]) -> str:
    """Return `verdict` with `{who}` and `{host}` replaced by the ranks and the host of `events`.

    The text `{host}` becomes "" unless the events name exactly one host.
    """
    # At most four ranks are named.
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
