"""Lines that are no sign of a failure, and without which the signs can't be understood."""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.model.nccl_lines import STEP_WORDS, Step

FRAME = "context.frame"
SUCCESS = "context.success"
PROGRESS = "context.progress"
WORLD = "context.world"
FRAMEWORK = "context.framework"
TIMEOUT_OPTION = "context.timeout_option"
VISIBLE = "context.visible"
NCCL_STEP = "context.nccl_step"
EXCEPTION = "context.exception"
COLLECTIVE = "context.collective"
SAVE_FRAME = "context.save_frame"
DATA_FRAME = "context.data_frame"
ABORTED = "context.aborted"
TRACEBACK = "context.traceback"
BARRIER_FRAME = "context.barrier_frame"
TASK_EXIT = "context.task_exit"
PAST_STORE = "context.past_store"
SYSTEM_ERROR = "context.system_error"
DIED = "context.died"

# Names that do not end as exceptions do.
OTHER_EXCEPTIONS = (
    r"exc\.Unsupported|StopIteration|TimeoutExpired|NoSuch(?:Key|Bucket)|MissingMandatoryValue|[a-z]NotFound"
)

PATTERNS: dict[str, str] = {
    SUCCESS: (
        r"\"status\": \"success\"|# Avg bus bandwidth|# Collective test concluded|ENDING TIMING RUN|"
        r"Training completed successfully|[Tt]raining (?:is )?(?:finished|complete[d]?\b)|"
        r"All done|Job completed successfully|TRAINING COMPLETE|status ok exit 0|`Trainer\.fit` stopped: `max_"
    ),
    WORLD: r"n[Rr]anks \d{1,6}|world_size[=:] ?\d{1,6}|WORLD_SIZE[=:] ?\d{1,6}|--nproc[-_]per[-_]node[= ]\d{1,4}",
    TIMEOUT_OPTION: r"ddp_timeout['\"]?[=: ]{1,3}\d{1,12}|distributed-timeout-minutes[= ]\d{1,8}",
    VISIBLE: r"CUDA_VISIBLE_DEVICES: ?\[|CUDA_VISIBLE_DEVICES ?= ?['\"]?\d",
    NCCL_STEP: "|".join(words for step, words in STEP_WORDS.items() if step is not Step.COLLECTIVE)
    + "|Destroy COMPLETE",
    PROGRESS: r"(?:float|half|bfloat16|double|u?int8|int32|fp8_\w{2,8}) +(?:sum|prod|min|max|avg|none) +-?\d",
    COLLECTIVE: STEP_WORDS[Step.COLLECTIVE],
    SAVE_FRAME: r"(?:, in |#\d{1,3} )_?(?:save_|_save)\w{1,60}",
    BARRIER_FRAME: r"(?:, in |#\d{1,3} )barrier\b",
    TASK_EXIT: r"srun: error: [^\n]{1,60}: tasks? [\d,-]{1,60}: Exited with exit code [1-9]\d?\b",
    # Short, so that no sign begins within them: at every place of a line only one pattern counts.
    DIED: r"ChildFailedError|local_rank: \d{1,6} \(pid|exits with\b|returned non-zero|"
    r"Primary job +terminated|noticed that process|Sending process \d{1,9} closing",
    SYSTEM_ERROR: r"unhandled system error",
    PAST_STORE: r"Completed store-based barrier",
    DATA_FRAME: r"(?:, in |#\d{1,3} )(?:main_process_first|local_main_process_first|zero_first|"
    r"prepare_dataset\w{0,30}|get_dataset\w{0,30}|tokenize\w{0,30}|load_tokenized\w{0,40})",
    TRACEBACK: r"Traceback \(most recent call last\)",
    EXCEPTION: rf"(?:[A-Za-z](?:Error|Exception|Interrupt)|{OTHER_EXCEPTIONS})(?:: |\r?$)",
    ABORTED: r"(?:exited|crashed) with (?:exit )?code -6|Aborted +\(core dumped\)|Signal 6 \(SIGABRT\)|"
    r"exit code 134|exitcode {0,4}: {0,2}-6|Signals\.SIGABRT|return code = -6|Fatal Python error: Aborted",
    FRAMEWORK: r"llamafactory|LLaMA-?Factory|TrainingArguments|transformers/trainer|trainer\.py:\d|"
    r"\[launch\.py:|deepspeed/runtime|"
    r"lightning|accelerate/|megatron/|Megatron|xtuner|mmengine|torchtitan|axolotl|swift/",
}

FRAMEWORKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "transformers",
        re.compile(r"llamafactory|LLaMA-?Factory|TrainingArguments|transformers/trainer|trainer\.py:\d|axolotl|swift/"),
    ),
    ("lightning", re.compile(r"lightning")),
    ("deepspeed", re.compile(r"deepspeed|launch\.py:")),
    ("megatron", re.compile(r"[Mm]egatron")),
    ("torchtitan", re.compile(r"torchtitan")),
    ("accelerate", re.compile(r"accelerate")),
    ("mmengine", re.compile(r"xtuner|mmengine")),
)

# Exceptions that a rank raises because another one is missing, or that a launcher raises because a rank died.
ECHO_TYPES = re.compile(
    r"(?:^|\.)(?:DistBackendError|DistStoreError|DistNetworkError|DistError|ConnectionError|"
    r"ConnectionResetError|ConnectionRefusedError|"
    r"ConnectionAbortedError|BrokenPipeError|EOFError|\w{0,40}TimeoutError|ReadTimeout\w*|WriteTimeout\w*|"
    r"RendezvousError|Rendezvous\w+Error|"
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|SystemExit|"
    r"KeyboardInterrupt|SignalException|"
    r"RayActorError|ActorDiedError|RayTaskError\w*|WorkerCrashedError|LocalRayletDiedError|"
    r"EngineDeadError|AsyncEngineDeadError|"
    r"CancelledError|Empty|nccl\w{0,40}Error|MultipleFailures|RemoteError|HorovodInternalError|"
    r"NCCLError|NcclError|DeadlineExceeded\w*)$"
)
ECHO_TEXT = re.compile(
    r"NCCL [Ee]rror|NCCL communicator|Watchdog caught|Connection (?:reset|closed|refused)|"
    r"Broken pipe|[Tt]imed? ?out|Engine core initialization failed|"
    r"SIGTERM|Gloo|gloo/|Socket Timeout|store->get|CUDA error|died unexpectedly|worker process|collective operation|"
    r"Some of your processes|DDP expects same model|Detected mismatch|unhandled (?:cuda|system) error|"
    r"(?:[Pp]rocess group (?:watchdog|was|is) |initializing process group)|"
    r"[Ss]ee (?:the )?(?:root cause|stack trace|error messages?|logs?)\b|stack trace above|"
    r"Process \d+ terminated|Background loop|cancelled|\[c10d\]|rendezvous|monitored_?[Bb]arrier|"
    r"Rank \d+ successfully reached"
)
EXCEPTION_LINE = re.compile(
    r"(?:^|[\s:|>\])])((?:[A-Za-z_]\w{0,60}\.){0,8}"
    rf"(?:[A-Za-z_]\w{{0,60}}(?:Error|Exception|Interrupt)|\w{{0,60}}(?:{OTHER_EXCEPTIONS})))(?:: (.{{0,600}})|\s*$)"
)


# What may stand before the last line of a traceback: the names that launchers put before every line, no sentence.
NAMES_BEFORE = re.compile(
    r"[\s>]{0,9}(?:\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}Z?\s{1,3}(?:[\w.-]{1,60}\s{1,3})?)?"
    r"(?:[^\s:]{1,60}[:\])|>]\s{0,3}){0,3}"
)


@dataclass(frozen=True, slots=True)
class Raised:
    """The last line of a traceback."""

    type: str
    message: str


def read_exception(text: str) -> Raised | None:
    """Return the exception that a line ends a traceback with; None for an echo of somebody else's failure."""
    match = EXCEPTION_LINE.search(text)
    if match is None:
        return None
    raised = Raised(match[1], (match[2] or "").strip())
    if ECHO_TYPES.search(raised.type) or ECHO_TEXT.search(raised.message):
        return None
    return raised


def begins_line(text: str, raised: Raised) -> bool:
    """Tell whether nothing but a launcher's prefix stands before an exception: people paste the last line alone."""
    return NAMES_BEFORE.fullmatch(text[: text.find(raised.type)]) is not None
