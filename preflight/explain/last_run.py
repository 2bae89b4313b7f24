"""Keep only the last run of a log that contains several runs, for example because of `>>` or `tee -a`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from preflight.explain import run_ends
from preflight.explain.event import Moment
from preflight.explain.line_prefix import read_moment
from preflight.explain.linear_patterns import compile_any
from preflight.explain.log_order import take
from preflight.explain.work_steps import STEP

LIMIT = 16 << 20  # bytes; a longer log is read whole
OPENING_LINES, LEAST_LINES = 12, 4
LOOKED_AT = 200  # lines, for the opening
STAMPED_BYTES = 32 << 10  # read for the first or last time stamp
ANCHORS = 3  # of the opening, one of which a run must print: a shell's message may take the place of the first
BEFORE = 60  # lines, in which the run before must have ended
MOST_REPEATS = 200
LONG_LINES = 100  # of a run, or of what follows it: more than one of several ranks prints at the start
LEAST_S = 60.0  # between the starts of two runs; the ranks of one run start closer together
LETTER, LEAST_LETTERS = re.compile(rb"[A-Za-z]"), 8
DIGITS = re.compile(rb"[\d\r]+")
SHORTEST_WORDS = 6  # bytes of a line without digits, for the search
LONGEST = 400  # bytes of a line that are compared
DETACHED = b"nohup: ignoring input"  # once for each run
STAMP = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|"
    rb"[IWEF](?:20\d\d)?\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: +\d{1,8})?|"
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:[A-Z]{2,5} )?\d{4}|"  # of `date`
    rb"\d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
)
DATED = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[ T_]\d\d:\d\d:\d\d|[IWEF](?:20\d\d)?\d{4} \d\d:\d\d:\d\d")  # of `STAMP`
# Addresses, hashes, process ids, ports; temperatures, powers, memory and loads of nvidia-smi.
VARIES = re.compile(rb"0x[0-9a-f]{2,16}|\b[0-9a-f]{8,40}\b|\d{4,40}| {0,4}\b\d{1,3}(?:C|W|MiB|%)(?= )")
ENDED = compile_any((
    *(run_ends.RUN_ENDS[name] for name in (
        *run_ends.ALARMS, run_ends.EXCEPTION, run_ends.SUCCESS, run_ends.DONE, run_ends.LEFT,
    )),
    r"^[\w.-]{1,60}: error: ",  # argparse
    r"ProcessGroupNCCL destruct",  # Paddle, at any exit
))  # fmt: skip
RESTART = compile_any([run_ends.RUN_ENDS[run_ends.RESTART]])
ALARM = compile_any(run_ends.RUN_ENDS[name] for name in (*run_ends.ALARMS, run_ends.EXCEPTION))


class Earlier(NamedTuple):
    """The lines and bytes of the earlier runs in a log, which are not read.

    `again` is the number of the line at which another run may begin, or 0. The first lines of the log are printed again
    there after an end, but nothing proves that this is another run of the job.
    """

    lines: int = 0
    size_bytes: int = 0
    again: int = 0


def last_run(chunks: Iterable[bytes], *, is_of_one_rank: bool) -> tuple[Iterable[bytes], Earlier]:
    """Return the last run of a log, and the size of the earlier runs."""
    # A new run begins if the log's first lines are printed again after the end of a run.
    rest = iter(chunks)
    head: list[bytes] = []
    text = take(rest, head, LIMIT)
    if len(text) > LIMIT:
        return chain(head, rest), Earlier()
    begins, again = _last_starts(text, is_of_one_rank=is_of_one_rank)
    if begins and not _stands_alone(text, begins, is_of_one_rank=is_of_one_rank):
        begins, again = 0, max(begins, again)
    may_begin = text.count(b"\n", 0, again) + 1 if again > begins else 0
    return [text[begins:]] if begins else head, Earlier(text.count(b"\n", 0, begins), begins, may_begin)


def _last_starts(text: bytes, *, is_of_one_rank: bool) -> tuple[int, int]:
    """Return the last position at which a run certainly begins, and the last one at which a run may begin.

    A position is 0 if there is none.
    """
    opening = _opening(text)
    start = again = previous = 0
    for repeat in _repeats(text, opening) if len(opening) >= LEAST_LINES else ():
        if before := _end_before(text, start, repeat):
            is_new = _is_new(text, start, repeat, before, is_of_one_rank=is_of_one_rank)
            if is_new:
                start = again = repeat
            elif is_new is None and text.count(b"\n", previous, repeat) >= LONG_LINES:
                again = repeat
        previous = repeat
    return start, again if text.count(b"\n", again) >= LONG_LINES else 0


def _stands_alone(text: bytes, begins: int, *, is_of_one_rank: bool) -> bool:
    """Return whether a whole run begins at the position `begins`.

    A whole run made steps, or failed in a log of one rank. A later stage of a script, a node that starts late or a
    child process may also print the first lines of a run.
    """
    if STEP.search(text, begins) is not None:
        return True
    return (is_of_one_rank or text.startswith(DETACHED, begins)) and ALARM.search(text, begins) is not None


def _opening(text: bytes) -> dict[bytes, bytes]:
    """Return {form: line} for the first lines of a log, up to the first line that reports a failure.

    The form of a line is the line without the parts that vary from run to run.
    """
    found: dict[bytes, bytes] = {}
    for line in text.split(b"\n", LOOKED_AT)[:LOOKED_AT]:
        if len(found) == OPENING_LINES or ALARM.search(line):
            break
        form = _form(line)
        if len(LETTER.findall(form)) >= LEAST_LETTERS:
            found.setdefault(form, line)
    return found


def _form(line: bytes) -> bytes:
    """Return a line with placeholders for the parts that vary from run to run.

    Short numbers stay in the line, because short numbers distinguish the ranks.
    """
    return VARIES.sub(b"#", STAMP.sub(b"@", line[:LONGEST].strip()))


def _repeats(text: bytes, opening: dict[bytes, bytes]) -> list[int]:
    """Return the positions at which the first lines of the log are repeated, in order."""
    forms = list(opening)
    found: set[int] = set()
    for place, form in enumerate(forms[:ANCHORS]):
        words = max(DIGITS.split(opening[form][:LONGEST].strip()), key=len)
        if len(words) >= SHORTEST_WORDS:
            found.update(each for each in _lines_with(text, words, form) if _opens(text, each, forms[place:]))
    return sorted(found)


def _lines_with(text: bytes, words: bytes, form: bytes) -> Iterator[int]:
    """Yield the positions at which lines with the form `form` begin, the last line first."""
    begins = len(text)
    for _ in range(MOST_REPEATS):
        at = text.rfind(words, 0, begins)
        begins = text.rfind(b"\n", 0, max(0, at)) + 1
        if at < 0 or begins == 0:
            return
        if _form(_lines_from(text, begins, 1)[0]) == form:
            yield begins


def _opens(text: bytes, begins: int, forms: list[bytes]) -> bool:
    """Return whether most of the line forms `forms` occur in order after the position `begins`.

    Other lines may be between these lines.
    """
    lines = [_form(line) for line in _lines_from(text, begins, 3 * OPENING_LINES)]
    at = seen = 0
    for form in forms:
        if form in lines[at:]:
            at = lines.index(form, at) + 1
            seen += 1
    return seen >= LEAST_LINES and 4 * seen >= 3 * len(forms)


def _is_new(text: bytes, start: int, repeat: int, before: bytes, *, is_of_one_rank: bool) -> bool | None:
    """Return whether another run than the one that begins at `start` begins at `repeat`; None if nothing shows this.

    `before` has the last lines before `repeat`.
    """
    first = _moment_in(text[start : start + STAMPED_BYTES])
    last = _moment_in(text[max(start, repeat - STAMPED_BYTES) : repeat], which=-1)
    new = _moment_in(text[repeat : repeat + STAMPED_BYTES])
    if new.clock and first.clock == last.clock == new.clock:
        return new.seconds >= last.seconds and (is_of_one_rank or new.seconds - first.seconds >= LEAST_S)
    if is_of_one_rank or text.startswith(DETACHED, repeat):
        return True
    return False if RESTART.search(before) else None


def _moment_in(text: bytes, which: int = 0) -> Moment:
    """Return the first time stamp in `text`, or the last time stamp if `which` is -1."""
    found = DATED.findall(text)
    return read_moment(found[which].decode()) if found else Moment()


def _lines_from(text: bytes, begins: int, most: int) -> list[bytes]:
    return text[begins : begins + most * LONGEST].split(b"\n", most)[:most]


def _end_before(text: bytes, start: int, repeat: int) -> bytes:
    """Return the last lines between two positions if a run ends in them; else b""."""
    lines = b"\n".join(text[max(start, repeat - BEFORE * LONGEST) : repeat].split(b"\n")[-BEFORE:])
    return lines if ENDED.search(lines) else b""
