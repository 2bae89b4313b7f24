"""Find log lines that no healthy run prints, to quote if a log names no cause or only a symptom.

A quoted line never proves a cause.
"""
# The file healthy_lines.bin holds hashes of the words in lines of healthy runs, and hashes of the first words of the
# same lines. The file has no text. `python -m scripts.healthy_lines` writes the file.

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from importlib import resources

from preflight.explain.line_prefix import ESCAPES, clean
from preflight.explain.linear_patterns import compile_any

DATA = "healthy_lines.bin"
HASH_BYTES = 5
FORM_WORDS = 12  # of a line: what follows them differs from run to run
READ_BYTES = 256 << 10  # of the end of a log
SCORED = 200  # lines of one part of a log, the last ones
ALL_SCORED = 10_000  # lines of all logs together
KEPT = 6  # lines of a log
SHOWN = 3
SURE = 2.0  # less is no line to quote
CLOSE = 2.0  # to the best one
LINE_LIMIT = 1200
# Words of failures. Case does not matter in what people write themselves, and costs nothing here.
FAILURE = (
    r"(?i:\b(?:fatal|panic\w{0,3}|segmentation|core dumped|abort\w{0,3}|killed|oom|out of memory|no space left|denied|"
    r"refused|unreachable|no route|uncorrectable|fallen off|inaccessible|corrupt\w{0,4}|assert\w{0,6}|double free|"
    r"illegal|invalid|mismatch\w{0,4}|exceed\w{0,3}|insufficient|exhausted|unable|cannot|can't|could ?n[o']t|"
    r"not (?:found|supported|available|permitted|initialized)|no such|check failed|timed? ?out|timeout|deadline\w{0,9}|"
    r"no [a-z -]{1,30} (?:found|available|left)|duplicate|not compatible|incompatible|not a valid|"
    r"stuck|hang|hung|busy|already in use|undefined symbol|too (?:many|small|large)|limit (?:hit|reached)|"
    r"error|fail(?:ed|ure|s)?)\b|[a-z](?:error|exception|limithit)\b|\bwc_\w{1,20}_err)"
)
FAILURES = re.compile(FAILURE)
HITS = compile_any([FAILURE])
HARDER = re.compile(r"\bF(?:20\d\d)?\d{4} \d\d:|Check failed|^fatal|Fatal|FATAL|: F external")
# The level of a line: of Python's logging, and of glog. A setting that names a level is none.
ERRORS = re.compile(
    r"(?:^|[\s\[(|])(?:ERROR|CRITICAL|FATAL)(?:[\]:|]|\s{1,3}[\[(\d]| - )|"
    r"(?:^|[\s\[])E(?:20\d\d)?(?:0[1-9]|1[0-2])\d\d \d\d:"
)
HARMLESS = re.compile(
    r"Unable to (?:initialize backend|register cu)|Failed to find nccl\w{1,40} symbol| - DEBUG - |\bhttpx - INFO - |"
    r"\b(?:[Ff]ailed|[Ff]ailures|[Ee]rrors) ?[=:] ?0\b"
)
RAISED = re.compile(r"[A-Za-z](?:Error|Exception|LimitHit)(?:\b: |\([^\n()]{0,80}\): )")
SOFT = re.compile(
    r"(?i)warn(?:ing|ed)|<warn>|deprecat|overload|will be removed|consider|please further tune|may be|might|could be|"
    r"in rare cases|to avoid|retry\w{0,3}|fallback|falling back|disabled|traceback \(most recent"
)
# A frame of a stack, and the source line below it.
FRAME = re.compile(
    r'\s{0,40}(?:File "|at 0x|@ {1,9}0x|frame #|#\d{1,3} |[\^~ ]+$|return |raise |self[.\[]|await |with |for |if |def |'
    r"class |import |from |[\w.]{1,60} = |[\w.]{1,60}\($|Exception raised from|Process \d|Thread )"
)
# What torch's watchdog and launchers print after any failure, and no sign names.
AFTERWARDS = re.compile(
    r"\bFAILED *$|Root Cause \(first|Stack trace of the failed|flight recorder|have failed or timed out|Abort COMPLETE|"
    r"[Ss]ome NCCL operations|can be (?:safely )?ignored"
)
PREFIXES = re.compile(
    r"\s{0,20}(?:\[[^\]\n]{0,60}\]:?|\([^)\n]{0,80}\)|[\w.-]{1,64}:\d{1,8}:\d{1,8} |\d{1,6}: |"
    r"\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}Z?(?:[+-]\d\d:?\d\d)?|[IWEF]?(?:20\d\d)?\d{4} [\d:.]{8,15}|\S{0,3}\||"
    r"[\w./-]{1,60}\.(?:py|cc|cpp):\d{1,6}\]|"
    r"(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|FATAL)\b:?(?:\s{1,3}\d\d-\d\d [\d:.,]{8,12})?)"
)
NOISE = re.compile(
    r"https?://\S{1,400}|(?:/[\w.@+-]{1,80}){2,30}|0x[0-9a-f]{2,16}|\b[0-9a-f]{8,40}\b|\w{0,30}\d\w{0,30}"
)
WORD = re.compile(r"[A-Za-z_]{2,30}")


@dataclass(frozen=True, slots=True)
class UnusualLine:
    """A log line that no healthy run prints. A higher score means that the line is more likely to name the cause."""

    score: float
    source: int
    line: int
    text: str
    form: str

    @property
    def is_error(self) -> bool:
        """Return whether the program marks the line as an error, by its log level or as an exception."""
        return any(words.search(self.text) for words in (HARDER, ERRORS, RAISED))


@dataclass(frozen=True, slots=True)
class Background:
    """The hashes of the lines that healthy runs print.

    `words` has the hash of each word. `forms` has the hash of the first words of each line.
    """

    forms: frozenset[bytes]
    words: frozenset[bytes]


def body_of(text: str) -> str:
    """Return a line without the prefixes that launchers and loggers add."""
    for _ in range(6):
        match = PREFIXES.match(text)
        if match is None or not match[0].strip():
            break
        text = text[match.end() :]
    return text


def words_of(text: str) -> list[str]:
    """Return the words of a line in lowercase, without prefixes, paths, addresses and anything with a digit."""
    return [word.lower() for word in WORD.findall(NOISE.sub(" ", body_of(ESCAPES.sub("", text))))]


def form_of(words: Iterable[str]) -> str:
    """Return the first words of a line as one text. Lines with the same first words count as similar."""
    return " ".join(list(words)[:FORM_WORDS])


def digest(text: str) -> bytes:
    """Return the hash of `text`, which is one word or the first words of a line."""
    return blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def packed(forms: Iterable[str], words: Iterable[str], earlier: Background | None = None) -> bytes:
    """Return the content of the file that holds hashes of the lines and words of healthy runs.

    The hashes in `earlier`, from an older file, are included.
    """
    # The content is the number of forms, the hashes of the forms, and the hashes of the words. A form is the first
    # words of a line.
    known = earlier or Background(frozenset(), frozenset())
    one = sorted({*map(digest, forms), *known.forms})
    other = sorted({*map(digest, words), *known.words})
    return len(one).to_bytes(4, "big") + b"".join(one) + b"".join(other)


def unpacked(data: bytes) -> Background:
    """Return the hashes in `data`, the bytes that `packed` returned."""
    ends = 4 + int.from_bytes(data[:4], "big") * HASH_BYTES
    parts = (data[4:ends], data[ends:])
    forms, words = (frozenset(part[at : at + HASH_BYTES] for at in range(0, len(part), HASH_BYTES)) for part in parts)
    return Background(forms, words)


@functools.cache
def background() -> Background:
    """Return the hashes of the lines that healthy runs print, from the file next to this module."""
    return unpacked(resources.files("preflight.explain").joinpath(DATA).read_bytes())


def _is_after_all(body: str) -> bool:
    return FRAME.match(body) is not None or AFTERWARDS.search(body) is not None


class UnusualLines:
    """A reader of logs that keeps the few lines that are most likely to name the cause.

    `is_secondary(line)` returns whether ranks and launchers print the line after any failure.
    """

    def __init__(self, is_secondary: Callable[[str], bool]) -> None:
        self._is_secondary = is_secondary
        self._left = ALL_SCORED
        self._best: dict[int, dict[str, UnusualLine]] = {}

    def read(self, source: int, first_line: int, text: bytes, place: Callable[[int], int] = int) -> None:
        """Score the lines of `text` that contain a word such as "failed", and keep the best lines.

        `first_line` is the number of the first line, and `place` converts a line number to the line number that users
        see.
        """
        # `text` is a part of log number `source`.
        spans = []
        position = 0
        while (match := HITS.search(text, position)) is not None:
            # Each search ends at the line: a text of one kind of line end is read once.
            low, after = position, match.end()
            start = max(text.rfind(b"\n", low, match.start()), text.rfind(b"\r", low, match.start()), low - 1) + 1
            ends = text.find(b"\n", after)
            end = ends if ends >= 0 else len(text)
            returns = text.find(b"\r", after, end)
            end = returns if returns >= 0 else end
            spans.append((start, end))
            position = max(end, match.end(), match.start() + 1)
        line, counted, last = first_line, 0, b""
        for start, end in spans[-SCORED:]:
            line += text.count(b"\n", counted, start)
            counted = start
            if self._left <= 0:
                return
            self._left -= 1
            raw = text[start : min(end, start + LINE_LIMIT)]
            if raw != last:  # the first of those alike is the one that is kept
                self._score(source, place(line), clean(raw))
            last = raw

    def _score(self, source: int, line: int, text: str) -> None:
        words = words_of(text)
        form, body = form_of(words), body_of(text)
        known = background()
        found = {match[0].lower() for match in FAILURES.finditer(body)}
        if not found or digest(form) in known.forms or HARMLESS.search(text):
            return
        if _is_after_all(body) or self._is_secondary(text):
            return
        distinct = {word for word in words if len(word) > 2} or {form}
        rare = sum(digest(word) not in known.words for word in distinct) / len(distinct)
        score = 2 * len(found) ** 0.5 + 2 * rare + ("NCCL WARN" in text)
        score += 2 * bool(HARDER.search(text)) + 1.5 * bool(RAISED.search(text)) - 1.5 * bool(SOFT.search(text))
        kept = self._best.setdefault(source, {})
        if score < SURE or (form in kept and kept[form].score >= score):
            return
        kept[form] = UnusualLine(score, source, line, text.strip(), form)
        if len(kept) > KEPT:
            del kept[min(kept, key=lambda each: (kept[each].score, -kept[each].line))]

    def best(self, quoted: frozenset[tuple[int, int]]) -> tuple[UnusualLine, ...]:
        """Return the lines with the best scores, in the order of the logs.

        Lines with (source, line) in `quoted` are left out.
        """
        found = (each for kept in self._best.values() for each in kept.values())
        ranked = sorted(found, key=lambda each: (-each.score, each.source, each.line))
        ranked = [each for each in ranked if (each.source, each.line) not in quoted]
        by_form = {each.form: each for each in reversed(ranked)}
        near = [each for each in by_form.values() if each.score >= ranked[0].score - CLOSE] if ranked else []
        chosen = sorted(near, key=lambda each: -each.score)[:SHOWN]
        return tuple(sorted(chosen, key=lambda each: (each.source, each.line)))
