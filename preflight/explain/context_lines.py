"""Patterns of log lines that only help to explain a failure, and patterns of the last lines of tracebacks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.explain.launchers import LOG_WORDS
from preflight.explain.nccl_start import STEP_WORDS, StartStep
from preflight.explain.run_ends import OTHER_EXCEPTIONS, RUN_ENDS
from preflight.explain.signatures import PRINTED

# An architecture in a path, and models of GPUs that known_bugs.toml tells apart.
MACHINE = r"aarch64|\bGB(?:10|200|300)\b|\bV100\b|\bH20\b|\bRTX PRO 6000\b|\bRTX [45]0\d0\b"
PATTERNS: dict[str, str] = {
    **RUN_ENDS,
    "context.world": r"n[Rr]anks \d{1,6}|world_size[=:] ?\d{1,6}|WORLD_SIZE[=:] ?\d{1,6}|"
    r"--nproc[-_]per[-_]node[= ]\d{1,4}",
    "context.several_nodes": r"\bnnodes(?:=|['\"]?: ?|[ =])['\"]?[2-9]\d{0,4}\b|--num[-_]nodes[ =][2-9]",
    "context.timeout_option": r"ddp_timeout['\"]?[=: ]{1,3}\d{1,12}|distributed-timeout-minutes[= ]\d{1,8}",
    "context.visible": r"CUDA_VISIBLE_DEVICES: ?\[|CUDA_VISIBLE_DEVICES ?= ?['\"]?\d",
    "context.nccl_step": "|".join(words for step, words in STEP_WORDS.items() if step is not StartStep.COLLECTIVE)
    + "|Destroy COMPLETE",
    "context.progress": r"(?:float|half|bfloat16|double|u?int8|int32|fp8_\w{2,8}) +(?:sum|prod|min|max|avg|none) +-?\d|"
    r"\bbusbw: +[\d.]{1,20} +Gbps",  # nccl-tests; all_reduce_bench.py
    "context.version": PRINTED,
    "context.machine": MACHINE,
    "context.nan": r"\b[Ll]oss\w{0,12}['\"]?(?: is|[=:]| ){1,3}['\"]?(?:nan|NaN)\b",
    "context.diag": r"NCCL DIAG ",
    "context.collective": STEP_WORDS[StartStep.COLLECTIVE],
    "context.save_frame": r"(?:, in |#\d{1,3} )_?(?:save_|_save)\w{1,60}",
    "context.barrier_frame": r"(?:, in |#\d{1,3} )barrier\b",
    "context.gid_change": r"NET/IB[^\n]{0,80}GID table change",
    "context.system_error": r"unhandled system error",
    "context.past_store": r"Completed store-based barrier",
    "context.data_frame": r"(?:, in |#\d{1,3} )(?:main_process_first|local_main_process_first|zero_first|"
    r"prepare_dataset\w{0,30}|get_dataset\w{0,30}|tokenize\w{0,30}|load_tokenized\w{0,40})",
    "context.launcher": "|".join(pattern for _, pattern in LOG_WORDS),
    "context.framework": r"llamafactory|LLaMA-?Factory|TrainingArguments|transformers/trainer|trainer\.py:\d|"
    r"\[launch\.py:|deepspeed/runtime|lightning|accelerate/|megatron/|Megatron|xtuner|"
    r"mmengine|torchtitan|axolotl|swift/|\(EngineCore|\(APIServer|\(Vllm\w{0,6}Worker|vLLM API server|"
    r"vLLM is using|sglang is using|server_args=ServerArgs|sglang::scheduler|Memory pool end\. avail mem=|"
    r"\[TensorRT-LLM\]",
}

FRAMEWORKS = {
    "transformers": r"llamafactory|LLaMA-?Factory|TrainingArguments|transformers/trainer|trainer\.py:\d|axolotl|swift/",
    "lightning": r"lightning",
    "deepspeed": r"deepspeed|launch\.py:",
    "megatron": r"[Mm]egatron",
    "torchtitan": r"torchtitan",
    "accelerate": r"accelerate",
    "mmengine": r"xtuner|mmengine",
    "engine": r"EngineCore|APIServer|Vllm|vLLM|sglang|ServerArgs|TensorRT-LLM|Memory pool end\. avail mem=",
}

# Exceptions that a rank raises because another one is missing, or that a launcher raises because a rank died.
ECHO_TYPES = re.compile(
    r"(?:^|\.)(?:DistBackendError|DistStoreError|DistNetworkError|DistError|RendezvousError|Rendezvous\w+Error|"
    r"ConnectionError|ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError|EOFError|"
    r"\w{0,40}TimeoutError|ReadTimeout\w*|WriteTimeout\w*|SystemExit|KeyboardInterrupt|SignalException|"
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|"
    r"RayActorError|ActorDiedError|RayTaskError\w*|WorkerCrashedError|LocalRayletDiedError|"
    r"EngineDeadError|AsyncEngineDeadError|CancelledError|Empty|nccl\w{0,40}Error|MultipleFailures|"
    r"\w{0,20}SIG(?:TERM|INT|HUP|USR\d)\w{0,20}|\w{0,20}Preempt\w{0,20}|RemoteError|HorovodInternalError|NCCLError|NcclError|DeadlineExceeded\w*|"
    r"ActorUnavailableError|ActorHandleNotFoundError|NodeDiedError|OwnerDiedError|ObjectLostError|"
    r"SockClientClosedError|MessageRouterClosedError)$"  # of wandb's thread as its process ends
)
ECHO_TEXT = re.compile(
    r"NCCL [Ee]rror|NCCL communicator|Watchdog caught|Connection (?:reset|closed|refused)|"
    r"Broken pipe|[Tt]imed? ?out|Engine core initialization failed|^Call to \w{1,40} method failed|^Executor failed\.$|"
    r"\bE[EHIJZ]\d{4}: |"
    r"`Process abort signal` is detected|^release unlocked lock$|"
    r"SIGTERM|Gloo|gloo/|Socket Timeout|store->get|(?:CUDA|HIP|NPU|HCCL function) error|hccl api|died unexpectedly|"
    r"function error: Hccl|`Termination signal` is detected|Blocking queue is killed|"
    r"worker process|collective operation|"
    r"Some of your processes|DDP expects same model|Detected mismatch|unhandled (?:cuda|system) error|"
    r"(?:[Pp]rocess group (?:watchdog|was|is) |initializing process group)|"
    r"[Ss]ee (?:the )?(?:root cause|stack trace|error messages?|logs?)\b|stack trace above|"
    r"Process \d+ terminated|Background loop|cancelled|\[c10d\]|rendezvous|monitored_?[Bb]arrier|"
    r"Rank \d+ successfully reached|exited with (?:error|exit) code|[Ww]orker failed with error|"
    r"Expected result >= 0 to be true|[Ff]ailed to start worker"
)
# Echoes that no program raises of itself: whatever they say, the reason stands elsewhere.
LIBRARY_TYPES = re.compile(
    r"Dist\w{0,20}Error$|Rendezvous|Connection\w{0,20}Error$|BrokenPipe|EOFError|SystemExit|KeyboardInterrupt|Signal|"
    r"ChildFailed|CalledProcess|ProcessRaised|ProcessExited|ray\.|Ray|Actor|Worker|Engine|Cancelled|Empty$|[Nn][Cc][Cc][Ll]|"
    r"Multiple|Remote|Horovod|ClosedError|Accelerator|XlaRuntime|JaxRuntime|SIG[THIU]|Preempt"
)
LIBRARY_TEXT = re.compile(
    r"\bE[EHIJZ]\d{4}: |`Termination signal`|Blocking queue|"
    r"[NRH]CCL|nccl|[Hh]ccl|Watchdog|Engine core|SIGTERM|[Gg]loo|Socket Timeout|store|CUDA|HIP |collective|DDP |"
    r"unhandled|[Pp]rocess group|[Ss]ee (?:the )?(?:root|stack|error|log)|stack trace|c10d|rendezvous|[Bb]arrier|"
    r"Rank \d+ successfully|Broken pipe|Connection (?:reset|closed|refused)|died unexpectedly|worker|Process \d"
)
EXCEPTION_LINE = re.compile(
    r"(?:^|[\s:|>\])])((?:[A-Za-z_]\w{0,60}\.){0,8}"
    rf"(?:[A-Za-z_]\w{{0,60}}(?:Error|Exception|Interrupt)|Exception|(?<=\.)Error|\w{{0,60}}(?:{OTHER_EXCEPTIONS})))"
    r"(?:: (.{0,600})|\s*$)"
)


# Levels below which a program logs no exception that ends it; a bare `Exception` it also logs as an error.
HANDLED, LEVEL = re.compile(r"\b(?:WARN(?:ING)?|INFO|DEBUG)\b"), re.compile(r"\bERROR\b")
# UserWarning, FutureWarning, ...; what torch writes in C++ is a bare "Warning: ".
PYTHON_WARNING = re.compile(r"[A-Za-z]{2}Warning: ")
# What may stand before the last line of a traceback: the names that launchers put before every line, no sentence.
NAMES_BEFORE = re.compile(
    r"[\s>]{0,9}(?:\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}Z?\s{1,3}(?:[\w.-]{1,60}\s{1,3})?)?"
    r"(?:[^\s:]{1,60}[:\])|>]\s{0,3}){0,3}"
    r"(?:\((?:Worker|EngineCore)[^()\n]{0,60}\) (?:\(Ray\w{0,20} [^()\n]{0,60}\) )?"  # vLLM's, also below Ray's
    r"ERROR \d\d-\d\d [\d:]{8} \[[\w./]{1,60}:\d{1,5}\] )?"
)


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception in the last line of a traceback.

    `is_echo` says that another rank caused the exception. `is_weak` says that only the text of the exception suggests
    another rank as the cause.
    """

    # A launcher or a rank raises an echo. If `is_weak` is true, the exception may be the program's own error.

    type: str
    message: str
    is_echo: bool = False
    is_weak: bool = False


def read_exception(text: str) -> Raised | None:
    """Return the exception in `text`, the last line of a traceback, or None if the line has no exception."""
    match = EXCEPTION_LINE.search(text)
    if match is None:
        return None
    name, message = match[1], (match[2] or "").strip()
    if name == "Exception" and (inner := read_exception(message)) is not None and message.startswith(inner.type):
        return inner
    is_echo = bool(ECHO_TYPES.search(name) or ECHO_TEXT.search(message))
    is_library = bool(LIBRARY_TYPES.search(name) or LIBRARY_TEXT.search(message))
    return Raised(name, message, is_echo, is_weak=is_echo and not is_library)


def begins_line(text: str, raised: Raised) -> bool:
    """Return whether the line `text` begins with the exception `raised`, apart from a launcher's prefix."""
    # The line counts without a traceback, because people often paste only the last line of a traceback.
    before = text[: text.find(raised.type)]
    if HANDLED.search(before) or (raised.type == "Exception" and LEVEL.search(before)):
        return False
    return NAMES_BEFORE.fullmatch(before) is not None
