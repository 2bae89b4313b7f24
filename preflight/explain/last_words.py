"""Help for a log that names no cause: the last relevant lines, and the other logs that would show more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from preflight.explain import run_ends
from preflight.explain.endings import STOPPED
from preflight.explain.event import UNKNOWN, Authority, Event, Moment
from preflight.explain.launchers import OTHER_LOGS, way
from preflight.explain.log_evidence import RECORDED, LogEvidence, SourceState

SHOWN = 5
TEXT = 400
NUMBERS = re.compile(r"[0-9a-fx]*\d[0-9a-fx]*")
FEW_LINES = 3
MARKUP = re.compile(
    r"\s{0,20}</?(?:h[1-6]|p|div|li|ul|ol|span|a|br|article|section|blockquote|strong|em)\b[^>]{0,200}>"
)
SENTENCE = re.compile(
    r"[A-Z\u2018\u201c\"'(][^\n]{40,4000}[.!?\u3002\uff01\uff1f]|[^\x00-\x7f][^\n]{20,4000}[\u3002\uff01\uff1f]"
)
# Times, levels, names of files with a line, numbers with a unit: such texts are in the lines of programs.
PRINTED = re.compile(
    r"\d\d:\d\d:\d\d|\b(?:INFO|WARN(?:ING)?|ERROR|DEBUG)\b|\.(?:py|cc|cpp|cu|h):\d|^\[|Warning: |Error: |0x[0-9a-f]{4}"
)
MEANS = {
    RECORDED: "what the flight recorder's dump of this rank shows",
    "hang.last": "the last step that the job announced",
    run_ends.TRACEBACK: "a traceback begins",
    run_ends.STOP_ORDER: "a request to stop",
    run_ends.EXCEPTION: "the last line of a traceback",
    run_ends.ABORT: "a process aborted",
    run_ends.EXIT_CODE: "a process ended with an error code",
    run_ends.TASK_EXIT: "a task ended with an error code",
    run_ends.DEATH: "a process or the whole job failed",
    run_ends.SUCCESS: "the job reached its end",
}
NCCL = "NCCL_DEBUG=WARN   # set it on all ranks; NCCL then names the failed call in the line before the exception"


def looks_like_prose(lines: Sequence[str]) -> bool:
    """Return whether `lines`, the end of a text, look like an article instead of a log.

    Most lines of an article are sentences or marked-up text.
    """
    return len(lines) >= FEW_LINES and sum(map(_is_sentence, lines)) * 2 > len(lines)


def _is_sentence(line: str) -> bool:
    if MARKUP.match(line):
        return True
    text = line.strip()
    return bool(SENTENCE.fullmatch(text)) and not PRINTED.search(text)


def last_words(evidence: LogEvidence) -> tuple[Event, ...]:
    """Return the last lines that report a failure, in the order of the logs.

    If no line reports a failure, return the last line of each log.
    """
    # Of several similar lines, only the first line is returned.
    kinds: dict[str, Event] = {}
    for event in evidence.alarms():
        kinds.setdefault(NUMBERS.sub("#", event.text)[:80], event)
    # An order to stop and the launcher's table say less than what a process said itself.
    said = sorted(kinds.values(), key=lambda event: (_tells(event), event.order))[-SHOWN:]
    if said:
        return tuple(sorted(said, key=lambda event: event.order))
    return tuple(_last_line(number, source) for number, source in enumerate(evidence.sources[:SHOWN]) if source.tail)


def to_fetch(evidence: LogEvidence) -> tuple[str, ...]:
    """Return advice on which other logs would show more, with the launcher's commands to get these logs."""
    return tuple(_to_fetch(evidence))


def _to_fetch(evidence: LogEvidence) -> Iterator[str]:
    ranks = [row.rank for row in evidence.processes if row.code not in ("", STOPPED) and row.raised is None]
    if ranks:
        noun = "rank" if len(ranks) == 1 else "ranks"
        yield (
            f"Get the log of {noun} {', '.join(ranks[:4])}. The launcher names it, but these logs do not show its end "
            f"(torchrun --log-dir DIR --redirects 3 --tee 3 keeps one log per rank)."
        )
    if any("NCCL" in event.text for event, _ in evidence.echoes):
        yield f"Run it again with {NCCL}"
    yield from way(OTHER_LOGS, evidence.launchers)


def _tells(event: Event) -> int:
    if event.sign == run_ends.EXCEPTION or event.authority is not Authority.SILENCE:
        return 2
    return 0 if event.sign in (run_ends.STOP_ORDER, run_ends.TRACEBACK) else 1


def _last_line(number: int, source: SourceState) -> Event:
    text = source.tail[-1].strip()[:TEXT]
    return Event("end.last", "", Authority.SILENCE, number, source.lines, 0, UNKNOWN, UNKNOWN, Moment(), text)
