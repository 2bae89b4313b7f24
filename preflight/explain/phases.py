"""What the job was doing when the waiting began: saving, preparing data, evaluating, training."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from preflight.explain.prefilter import compile_last
from preflight.explain.prefix import clean


class Phase(str, Enum):
    """A stretch of a job in which ranks wait for each other for long."""

    SAVING = "saving a checkpoint"
    PREPROCESSING = "preparing the data set"
    LOADING = "loading the model"
    EVALUATING = "evaluating"
    TRAINING = "training"
    FINISHED = "at the end of training"


# Case matters: the bytes are searched for as they stand.
WORDS: dict[Phase, tuple[str, ...]] = {
    Phase.SAVING: (
        r"[Ss]aving (?:[\w-]{1,20} ){0,5}(?:model|checkpoint|weights|optimizer|state|adapter|snapshot|ckpt)",
        r"[Ss]aved? (?:model|checkpoint|state) ",
        r"Retrieving (?:full model|optimizer) state dict|state dict took \d",
        r"save_pretrained|save_checkpoint|save_model|_save_other|save_state|_save_checkpoint|"
        r"save_16bit_model|save_fsdp",
        r"full_state_dict|get_model_state_dict|FullStateDictConfig|_zero3_consolidated",
        r"\[Torch\] (?:Checkpoint|Saving)",
        r"[Cc]heckpointing (?:model|state|at |to )|[Dd]umping (?:the )?(?:model|checkpoint|state)",
        r"(?:model|checkpoint|weights|tokenizer config file|configuration) (?:is )?saved",
        r"(?:Model weights|Configuration|tokenizer config file|Special tokens file) saved in",
        r"saving checkpoint at iteration",
        r"[Ww]riting (?:checkpoint|model)",
        r"'train_runtime'",
        r"Training completed\. Do not forget to share",
        r"Checkpoint \S{1,80} is ready now",
    ),
    Phase.PREPROCESSING: (
        r"Running tokenizer",
        r"[Tt]okeni[sz]ing",
        r"Map(?: \(num_proc=\d+\))?: +\d",
        r"Filter(?: \(num_proc=\d+\))?: +\d",
        r"Generating \w+ split",
        r"Converting format of dataset",
        r"build_train_valid_test_data",
        r"> building (?:train|indices|shuffle|sample|doc|dataset index)",
        r"building (?:the indices on rank|sapmles index)|Build and save the",
        r"data files using \d|mem-?mapped files|Scanning \S{1,80}labels|Caching images",
        r"building (?:the )?(?:train|validation|test|index|sample|doc|shuffle)[\w, -]{0,40}(?:dataset|ind|map)",
        r"[Pp]re-?processing (?:the |train|data[ s]|dataset|\d)",
        r"Grouping texts|Packing |Dropping Long Sequences|Saving the dataset|Loading dataset",
        r"\d ?(?:examples|samples|docs|records|files|rows|[KMG]?B)/s",
        r"Downloading (?:data|shards|builder|readme|and preparing)",
    ),
    Phase.LOADING: (
        r"Loading checkpoint shards",
        r"Load(?:ing)? (?:pipeline|safetensors|model|weights)",
        r"Fetching \d+ files",
    ),
    Phase.EVALUATING: (
        r"\*\*\*\*\* Running (?:Evaluation|Prediction)",
        r"[Vv]alidation(?: DataLoader| Sanity)",
        r"[Ee]valuat(?:ing|ion)",
    ),
    Phase.TRAINING: (
        r"\{'loss'",
        r"\biteration +\d+/",
        r"\d+/\d+ \[[\d:]+<[\d:]+, ",
        r"consumed samples",
    ),
}
LAST = compile_last(word for words in WORDS.values() for word in words)
KINDS = tuple((phase, re.compile("|".join(words))) for phase, words in WORDS.items())
FULL_BAR = re.compile(r"100%\|[^|]{0,400}\| *(\d[\d.]{0,11}[kKMGT]?)/\1 \[")
BAR = re.compile(r"\[((?:\d{1,3}:)?\d{1,2}:\d\d)<")
STEP = re.compile(r"\{'loss': .{1,200}|\biteration +\d{1,9}/|\d{1,9}/\d{1,9}(?= \[)")
LINE_LIMIT = 600
LOOK_THROUGH = 20  # bars at 100 % in a row; more would make this quadratic
LOOK_BACK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class PhaseSeen:
    """The last line before a failure that tells what the job was doing."""

    phase: Phase
    text: str
    line: int


def steps_of(lines: Iterable[str]) -> frozenset[str]:
    """Return the different training steps that lines tell of: a bar that is drawn again is the same step."""
    return frozenset(found[0] for line in lines if (found := STEP.search(line)))


def bar_elapsed_s(text: str) -> float | None:
    """Return how long the progress bar of a line had run, in seconds; None where the line has no bar."""
    matches = BAR.findall(text)
    if not matches:
        return None
    seconds = 0.0
    for part in matches[-1].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds


def is_full_bar(text: str) -> bool:
    """Tell whether a line shows a progress bar at its end."""
    return FULL_BAR.search(text) is not None


def last_phase(blocks: list[tuple[int, bytes]]) -> PhaseSeen | None:
    """Return the last phase that a log names; `blocks` are (number of their first line, bytes), in order.

    A training bar at its end is looked through, as it is drawn once more after whatever came last; where nothing but
    training lies behind it, training had just finished.
    """
    finished: PhaseSeen | None = None
    for first_line, block in reversed(blocks):
        end = len(block)
        for _ in range(LOOK_THROUGH):
            match = LAST.search(block[:end])
            if match is None:
                break
            start, text = _line_at(block, match.end())
            line = first_line + block.count(b"\n", 0, start)
            kind = _kind(text)
            if kind is Phase.FINISHED:
                finished = finished or PhaseSeen(kind, text, line)
            elif kind is not None:
                return finished if finished is not None and kind is Phase.TRAINING else PhaseSeen(kind, text, line)
            end = start
    return finished


def _line_at(block: bytes, at: int) -> tuple[int, str]:
    low = max(0, at - LINE_LIMIT)
    start = max(block.rfind(b"\n", low, at), block.rfind(b"\r", low, at)) + 1 or low
    ends = [i for i in (block.find(b"\n", at, at + LINE_LIMIT), block.find(b"\r", at, at + LINE_LIMIT)) if i >= 0]
    return start, clean(block[start : min(ends, default=at + LINE_LIMIT)])


def _kind(text: str) -> Phase | None:
    for phase, pattern in KINDS:
        if pattern.search(text):
            return Phase.FINISHED if phase is Phase.TRAINING and FULL_BAR.search(text) else phase
    return None
