"""Scan the bytes of a log in one pass, and convert the lines that match a pattern to events."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from preflight.explain import context_lines, run_ends
from preflight.explain.cause import Cause
from preflight.explain.event import Authority, Event
from preflight.explain.job_progress import LOOK_BACK_BYTES, PhaseRecord, last_phase
from preflight.explain.last_frames import read_last_frame
from preflight.explain.last_run import last_run
from preflight.explain.launchers import launcher_of
from preflight.explain.line_prefix import Prefix, clean, line_around, read_prefix
from preflight.explain.linear_patterns import compile_any
from preflight.explain.log_evidence import TAIL_LINES, LogEvidence, SourceState
from preflight.explain.log_order import oldest_first
from preflight.explain.signatures import read_versions
from preflight.explain.survival import FEW
from preflight.explain.unusual_lines import HARDER, READ_BYTES, UnusualLines
from preflight.explain.unwrap_lines import unwrapped
from preflight.explain.work_steps import StepCounter
from preflight.model.job_phases import Phase

LINE_LIMIT = 2000  # of a longer line, what lies around the sign
BEFORE_SIGN = 400
WRAPPED = 1600  # a message that a terminal wrapped is read this far
LONGEST_UNBROKEN = 1 << 20  # a line longer than this is read in pieces
OVERLAP = 512
TAIL_BYTES = 16 << 10
TEXT_LIMIT = 400
SIGNS_PER_LINE = 40
LONGEST_SIGN = 500  # bytes
SATURATED = 3000  # lines of one sign; more of the same can't change the answer, and a flood must not cost minutes
FRAMES_KEPT = 500
RAISED_KEPT = 2000  # exceptions of one kind
WITHOUT_TRACEBACK_KEPT = 200
TRACEBACKS = 20  # looked at before the first failure
TRACEBACK = re.compile(rb'Traceback \(most recent call last\)|  File "')
TRACEBACK_BYTES = 6000
# Python goes on after these, and NeMo without what it could not import: what follows is no end of anything.
IGNORED = re.compile(
    rb"Exception ignored in|Error in atexit\._run_exitfuncs|--- Logging error ---|"
    rb"Import of [^\n]{1,200} failed with: $"
)
FINALIZER = b", in _run_finalizers"  # of multiprocessing, which prints what they raise
WANDB = b'/wandb/sdk/lib/sock_client.py"'  # a connection to wandb's own process
IGNORED_BYTES = 300
# The last line of a traceback, after the names that launchers put before every line.
PREFIXES = rb"(?:[^\s:()\]|>]{1,60}[:\])|>]{1,2} {0,3}|\([^()\n]{1,60}\) {0,3}){0,3}"
ENDED = re.compile(rb"^" + PREFIXES + rb"[\w.]{0,100}(?:Error|Exception|Interrupt)(?::|\s*$)", re.MULTILINE)
CHAINED = re.compile(rb"another exception occurred:|direct cause of the following")
# Lines in which a sign is no fault: vLLM and SGLang go on without their own all-reduce, SGLang without the models that
# it can't import, detectron2 without an extension; a name of the web is not the job's; and a text that the job works on
# may speak of divisors.
NO_FAULT = (
    ("p2p.failed", re.compile(r"To silence this warning")),
    ("version.", re.compile(r"Ignore import error when loading|not built correctly: |APIs are compatible, accepting")),
    ("version.import", re.compile(r"\bWARN")),
    # NumPy's warning about a module for NumPy 1 shows its stack in this form, and no exception.
    ("end.traceback", re.compile(r'last\): {1,3}File "[^"\n]{1,300}", line \d{1,6}, in \S{1,60}\s{0,3}$')),
    ("end.", re.compile(r"Worker \w{1,60} pid \d{1,9} died, exit code: -15")),  # vLLM, as Python ends its workers
    ("rendezvous.", re.compile(r"https?://|HTTPS?Connection")),
    ("arguments.s", re.compile(r"\A(?!.*(?:Error|exceeds)).*\b(?:INFO|WARNING|DEBUG)\b", re.DOTALL)),
    ("arguments.sizes", re.compile(
        r"\A(?!.*(?:error|assert|fail|refus|rank|size|batch|parallel|head|layer|expert|stage|token|seq|shard|device|gpu))",
        re.IGNORECASE | re.DOTALL,
    )),
)  # fmt: skip
FILE_RANK = re.compile(r"(?:rank|worker|task)[_.-]?(\d{1,6})(?![0-9A-Za-z])|/(\d{1,6})/std(?:err|out)", re.IGNORECASE)
# A pod "worker-0" has many, and so has "lora_rank16".
ONE_PROCESS = re.compile(r"(?i)(?<!lora)(?<!lora[_.-])rank[_.-]?\d|workerlog\.\d|/\d{1,3}/std(?:err|out)")
TABLE = re.compile(
    rb"\brank {1,12}: (\d{1,7}) \(local_rank: \d{1,7}\)[^\n]{0,20}\n[^\n]{0,60}exitcode {1,9}: (-?\d{1,5})"
)
WAIT_SIGNS = frozenset({"watchdog.caught", "watchdog.status", "watchdog.received_dump"})
OPTION_SECONDS = re.compile(r"ddp_timeout['\"]?[=: ]{1,3}(\d{1,12})|distributed-timeout-minutes[= ](\d{1,8})")
NUMBER = re.compile(r"\d{1,6}$")
SECONDARY = frozenset({
    run_ends.ABORT, run_ends.DEATH, run_ends.TASK_EXIT, run_ends.EXIT_CODE, run_ends.STOP_ORDER, run_ends.TRACEBACK,
    run_ends.SUCCESS, run_ends.RESTART, run_ends.DONE, run_ends.LEFT, run_ends.READY, run_ends.START,
    run_ends.TOLD_TO_STOP,
})  # fmt: skip
ALARMING = frozenset({*run_ends.ALARMS, run_ends.SUCCESS, run_ends.RESTART, run_ends.TOLD_TO_STOP})


def rank_of(name: str) -> str:
    """Return the rank in the file name of a log, or "" if the name has no rank."""
    match = FILE_RANK.search(name)
    return match[1] or match[2] if match else ""


def _frameworks(text: str) -> list[str]:
    return [name for name, pattern in context_lines.FRAMEWORKS.items() if re.search(pattern, text)]


class Scanner:
    """A reader that collects the evidence from any number of logs in one `LogEvidence`."""

    def __init__(self, causes: Iterable[Cause]) -> None:
        self.evidence = LogEvidence()
        self._signs: list[tuple[str, str, Authority | None, str]] = [
            (sign.name, cause.id, sign.authority, sign.pattern) for cause in causes for sign in cause.signs
        ]
        self._signs += [(name, "", None, pattern) for name, pattern in context_lines.PATTERNS.items()]
        named = "|".join(f"(?P<s{i}>{pattern})" for i, (*_, pattern) in enumerate(self._signs))
        self._name = re.compile(named.encode("ascii"), re.MULTILINE)
        self._find = compile_any(pattern for *_, pattern in self._signs)
        self._open = set(range(len(self._signs)))
        self._prefilter = self._find
        self._order = 0
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0
        self._places: tuple[int, ...] = ()  # the numbers that lines had before they were joined
        self._turned = 0  # how many lines it has, where it stood newest first
        self._work = StepCounter()
        self._unusual = UnusualLines(self._is_secondary)
        self.evidence.unusual = self._unusual.best

    def read(self, name: str, chunks: Iterable[bytes]) -> SourceState:
        """Read one log. A chunk may end in the middle of a line."""
        source = SourceState(name)
        source.file_rank = rank_of(name)
        self.evidence.sources.append(source)
        self._recent.clear()
        self._recent_bytes = 0
        self._work = StepCounter()
        carry = b""
        tail = b""
        chunks, self._turned = oldest_first(chunks)
        if not self._turned:
            chunks, source.earlier = last_run(chunks, is_of_one_rank=ONE_PROCESS.search(name) is not None)
        source.size_bytes = source.earlier.size_bytes
        chunks, self._places = unwrapped(chunks)
        for piece in chunks:
            chunk = piece
            source.size_bytes += len(chunk)
            cut = chunk.rfind(b"\n") + 1
            if not cut and len(carry) + len(chunk) > LONGEST_UNBROKEN:
                chunk, carry = carry + chunk, b""
                cut = len(chunk) - OVERLAP
            # A log is copied once at most: what is as fast as `grep` feels every pass.
            if cut:
                block = b"".join((carry, memoryview(chunk)[:cut]))
                carry = chunk[cut:]
                self._block(source, block)
                tail = (tail + block)[-TAIL_BYTES:] if len(block) < TAIL_BYTES else block[-TAIL_BYTES:]
            else:
                carry += chunk
        if carry:
            self._block(source, carry)
            tail = (tail + carry)[-TAIL_BYTES:]
        self._read_unusual(source, list(self._recent))
        source.steps, source.prepared = self._work.count, self._work.prepared
        phase = None if source.phases else last_phase(list(self._recent))
        # Others may give up while one rank still prepares the data: its lines come later than theirs.
        if phase is not None and (source.failed_at is None or phase.phase is Phase.PREPROCESSING):
            source.phases.append(self._placed(phase))
        source.lines = self._turned or self._place(source.lines)
        source.table = {rank.decode(): code.decode() for rank, code in TABLE.findall(tail)}
        source.tail = tuple(clean(line) for line in re.split(rb"[\r\n]+", tail)[-TAIL_LINES - 1 :] if line.strip())
        return source

    def _block(self, source: SourceState, block: bytes) -> None:
        search, position, counted, line = self._prefilter.search, 0, 0, source.lines + 1
        worked = 0  # how far the block was read for steps of the job's work
        while (match := search(block, position)) is not None:
            at, after = match.span()
            start, end = line_around(block, at, after, LINE_LIMIT, BEFORE_SIGN)
            if self._work.is_counting and start > worked:
                self._work.read(block[worked:start])
            worked, alarms = max(worked, start), self._work.alarms
            line += block.count(b"\n", counted, start)
            counted = max(counted, start)
            if self._line(source, block, (start, at, end), self._place(line)):
                search = self._prefilter.search
            position = max(end, after, at + 1)
            if self._work.alarms > alarms:
                worked = max(end, after)  # the line of an alarm is no step
                if not alarms:  # what came before the first one tells most
                    self._read_unusual(source, [*self._recent, (source.lines + 1, block[:worked])])
        if self._work.is_counting:
            self._work.read(block[worked:])
        self._recent.append((source.lines + 1, block))
        source.lines = line - 1 + block.count(b"\n", counted)
        self._recent_bytes += len(block)
        while self._recent_bytes > LOOK_BACK_BYTES and len(self._recent) > 1:
            self._recent_bytes -= len(self._recent.popleft()[1])

    def _line(self, source: SourceState, block: bytes, span: tuple[int, int, int], line: int) -> bool:
        """Process one line of a log; return whether the prefilter was rebuilt."""
        start, at, end = span
        text = clean(block[start:end])
        prefix = read_prefix(text)
        if not prefix.rank and source.file_rank:
            prefix = Prefix(source.file_rank, prefix.host, prefix.moment)
        matches = self._matches(text)
        for sign, words in NO_FAULT:
            left = [match for match in matches if not self._signs[match[0]][0].startswith(sign)]
            if len(left) < len(matches) and words.search(text):
                matches = left
        if not any(index in self._open for index, *_ in matches):
            return self._is_barren(block, at)
        has_sign = any(self._signs[index][1] for index, *_ in matches)
        is_exception = any(self._signs[index][0] == run_ends.EXCEPTION for index, *_ in matches)
        if has_sign and is_exception and self._is_ignored(line, text, self._before(block, start)):
            return False
        changed = False
        for index, low, high in matches:
            name, cause, authority, _ = self._signs[index]
            self._order += 1
            event = Event(
                name, cause, authority or Authority.SILENCE, len(self.evidence.sources) - 1, line, self._order,
                prefix.rank, prefix.host, prefix.moment, _around(text, low, high), text[low:high], self._work.count,
                authority is not Authority.HARDWARE and context_lines.PYTHON_WARNING.search(text[:low]) is not None,
            )  # fmt: skip
            if name in WAIT_SIGNS:
                wait = self.evidence.waits.read(text, clean(block[start : start + WRAPPED]), prefix.rank)
                if wait is not None and wait.rank and not prefix.rank:
                    event = replace(event, rank=wait.rank)
            if authority is not Authority.SILENCE and (authority is not None or name in ALARMING):
                self._work.alarms += 1
            if authority is None:
                self._context(event, text, block, start, has_sign)
                is_early = source.failed_at is None and self.evidence.counts[name] <= TRACEBACKS
                if name == run_ends.TRACEBACK and is_early:
                    source.phases.clear()
                    self._note_phase(source, block, at)
            else:
                self._failure(source, event, block, at)
            changed |= self._saturate(index, name)
        return changed

    def _read_unusual(self, source: SourceState, blocks: list[tuple[int, bytes]]) -> None:
        """Look for unusual lines in the last part of `blocks`, given as (number of the first line, text)."""
        left = READ_BYTES
        for first_line, block in reversed(blocks):
            begins = block.find(b"\n", len(block) - left) + 1 if len(block) > left else 0
            number = first_line + block.count(b"\n", 0, begins)
            self._unusual.read(len(self.evidence.sources) - 1, number, block[begins:], self._place)
            left -= len(block) - begins
            if left <= 0:
                break

    def _is_secondary(self, text: str) -> bool:
        """Return whether a line is one that ranks and launchers print after any failure."""
        if HARDER.search(text):
            return False
        names = [self._signs[index] for index, *_ in self._matches(text)]
        if any(name in SECONDARY or (authority or 0) >= Authority.REFINED_TIMEOUT for name, _, authority, _ in names):
            return True
        raised = context_lines.read_exception(text) if any(n == run_ends.EXCEPTION for n, *_ in names) else None
        return raised is not None and context_lines.ECHO_TYPES.search(raised.type) is not None

    def _is_barren(self, block: bytes, at: int) -> bool:
        """Count a match that lies inside the match of a longer pattern; return whether the prefilter was rebuilt.

        The longer pattern is no longer searched, because this pattern matched too often. If the shorter pattern also
        matches very often, the shorter pattern is no longer searched either.
        """
        named = self._name.match(block, at)
        if named is None or named.lastgroup is None:
            return False
        index = int(named.lastgroup[1:])
        self.evidence.counts[self._signs[index][0]] += 1
        return self._saturate(index, self._signs[index][0])

    def _matches(self, text: str) -> list[tuple[int, int, int]]:
        """Return (index of the pattern, start, end) of each pattern's first match in a line.

        The linear engine finds the position, and `re` determines the pattern only at that position.
        """
        data = text.encode("ascii", "replace")  # one byte a character: places stay the same
        found: dict[int, tuple[int, int, int]] = {}
        read: set[bytes] = set()  # a line that repeats itself is read once
        position = 0
        for _ in range(SIGNS_PER_LINE):
            match = self._find.search(data, position)
            if match is None:
                break
            start = match.start()
            position = start + 1
            if (ahead := data[start : start + LONGEST_SIGN]) in read:
                position = match.end()
                continue
            read.add(ahead)
            if (named := self._name.match(data, start)) is not None and named.lastgroup is not None:
                index = int(named.lastgroup[1:])
                found.setdefault(index, (index, start, named.end()))
                position = max(position, named.end())
        return list(found.values())

    def _failure(self, source: SourceState, event: Event, block: bytes, at: int) -> None:
        if self.evidence.keep(event) and event.authority is not Authority.SILENCE:
            self._work.begin()
        # What the job did before its last failures counts: it had gone on after earlier ones.
        if event.authority is not Authority.SILENCE and (
            source.failed_at is None or event.steps - source.failed_steps >= FEW
        ):
            source.failed_at = event.order
            source.failed_steps = event.steps
            self._work.begin()
            source.phases.clear()  # a traceback before it was somebody else's
            self._note_phase(source, block, at)

    def _place(self, line: int) -> int:
        place = self._places[line - 1] if 0 < line <= len(self._places) else line
        place += self.evidence.sources[-1].earlier.lines
        return max(1, self._turned - place + 1) if self._turned else place

    def _placed(self, phase: PhaseRecord) -> PhaseRecord:
        return replace(phase, line=self._place(phase.line))

    def _note_phase(self, source: SourceState, block: bytes, end: int) -> None:
        phase = last_phase([*self._recent, (source.lines + 1, block[:end])])
        if phase is not None:
            source.phases.append(self._placed(phase))

    def _context(self, event: Event, text: str, block: bytes, start: int, has_sign: bool) -> None:
        evidence = self.evidence
        match event.sign:
            case "context.world":
                evidence.world_size = max([evidence.world_size, *map(int, NUMBER.findall(event.match))])
            case "context.framework":
                evidence.frameworks.update(_frameworks(event.match))
            case "context.version":
                evidence.versions = {**read_versions(event.text), **evidence.versions}
                evidence.frameworks.update(_frameworks(event.match))
            case "context.launcher":
                evidence.launchers.add(launcher_of(event.match))
                evidence.frameworks.update(_frameworks(event.match))  # an engine starts its own ranks
            case "context.timeout_option":
                if found := OPTION_SECONDS.search(event.match):
                    evidence.timeout_options_s.append(float(found[1]) if found[1] else float(found[2]) * 60)
            case "context.nccl_step" | "context.collective":
                evidence.starts.read(text, event.source, event.line)
            case run_ends.EXCEPTION:
                evidence.counts[event.sign] += 1
                self._frame(event, text, block, start)
                if not has_sign and (raised := context_lines.read_exception(text)) is not None:
                    self._work.alarms += 1
                    self._raised(event, raised, text, self._before(block, start))
                return
            case "context.visible":
                evidence.visible_gpus = evidence.visible_gpus or event.text
            case _:
                pass
        if evidence.keep(event) and event.sign in ALARMING:
            self._work.begin()

    def _frame(self, event: Event, text: str, block: bytes, start: int) -> None:
        """Keep the last frame of the traceback that ends with an event."""
        if len(self.evidence.frames) < FRAMES_KEPT and context_lines.read_exception(text) is not None:
            frame = read_last_frame(self._before(block, start), text)
            if frame is not None:
                self.evidence.frames[event.source, event.line] = event, frame

    def _raised(self, event: Event, raised: context_lines.Raised, text: str, before: bytes) -> None:
        if self._is_ignored(event.line, text, before):
            return
        if raised.is_echo:
            kept, most = self.evidence.echoes, RAISED_KEPT
        elif TRACEBACK.search(before):
            kept, most = self.evidence.exceptions, RAISED_KEPT
        elif context_lines.begins_line(text, raised):
            kept, most = self.evidence.without_traceback, WITHOUT_TRACEBACK_KEPT
        else:
            return
        if len(kept) < most:
            kept.append((event, raised))
            self._work.begin()

    def _is_ignored(self, line: int, text: str, before: bytes) -> bool:
        """Return whether Python ignored the exception in line `line`.

        If Python ignored the exception, remove the recorded traceback of the exception.
        """
        begins = before.rfind(b"Traceback (most recent call last)")
        if begins < 0 or ENDED.search(before, begins):
            return False
        ignored = IGNORED.search(before, max(0, begins - IGNORED_BYTES), begins)
        between = before[ignored.end() : begins] if ignored else b""
        is_own = ignored is not None and (CHAINED.search(between) or not ENDED.search(between))
        raised = context_lines.read_exception(text)
        is_wandb = WANDB in before[begins:] and raised is not None and context_lines.ECHO_TYPES.search(raised.type)
        if not is_own and FINALIZER not in before[begins:] and not is_wandb:
            return False
        self.evidence.forget_traceback(len(self.evidence.sources) - 1, line - before.count(b"\n", begins))
        return True

    def _before(self, block: bytes, start: int) -> bytes:
        """Return the text before a position, even if that text is in an earlier block."""
        before = block[max(0, start - TRACEBACK_BYTES) : start]
        for _, earlier in reversed(self._recent):
            if len(before) >= TRACEBACK_BYTES:
                break
            before = earlier[-(TRACEBACK_BYTES - len(before)) :] + before
        return before

    def _saturate(self, index: int, name: str) -> bool:
        if self.evidence.counts[name] < SATURATED or index not in self._open:
            return False
        self._open.discard(index)
        self._prefilter = compile_any([self._signs[i][3] for i in sorted(self._open)] or ["a^"])
        return True


def _around(text: str, start: int, end: int) -> str:
    if len(text) <= TEXT_LIMIT:
        return text.strip()
    low = max(0, min(start - TEXT_LIMIT // 3, len(text) - TEXT_LIMIT))
    return text[low : low + TEXT_LIMIT].strip()
