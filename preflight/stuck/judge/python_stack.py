"""The activity of a rank according to its Python stack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from preflight.model.stuck import Activity
from preflight.model.stuck_evidence import Frame

# Also a torch that was built from source, or lies elsewhere.
LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<|\.so\b|\.(?:c|cc|cpp|h|cu)$|^$|"
    r"/torch/(?:_[a-z_]+|autograd|cuda|distributed|multiprocessing|nn|optim|serialization|utils)\b"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that gives the activity of a thread, if a certain call is on the thread's stack.

    `call` is the name to print. If `call` is "", the function's name is printed.
    """

    # The rule has patterns for the file and the function.

    activity: Activity
    file: re.Pattern[str]
    function: re.Pattern[str]
    call: str = ""

    def fits(self, frame: Frame) -> bool:
        """Return whether a frame is a call to which this rule applies."""
        return bool(self.file.search(frame.file) and self.function.search(frame.short_name))


def _rule(activity: Activity, file: str, function: str = ".", call: str = "") -> Rule:
    return Rule(activity, re.compile(file), re.compile(function), call)


RING_FILE = r"/vllm/distributed/device_communicators/shm_broadcast\.py$"  # vLLM 0.32.0
FULL_RING = "a free block in the shared-memory ring"  # a worker does not read the oldest message
# Library calls, the innermost that matches decides. Function names as py-spy prints them: `Class.method` since 3.11.
RULES = (
    _rule(Activity.STARTING, r"torch/distributed/rendezvous\.py$", call="rendezvous"),
    _rule(Activity.STARTING, r"torch/distributed/distributed_c10d\.py$",
          r"^(?:init_process_group|_store_based_barrier|_new_process_group_helper|new_group|split_group)$"),
    _rule(Activity.ENDING, r"torch/distributed/distributed_c10d\.py$", r"^(?:destroy_process_group|_shutdown)"),
    _rule(Activity.COLLECTIVE, r"torch/distributed/distributed_c10d\.py$",
          r"^_?(?:all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|reduce|gather|scatter|barrier|"
          r"monitored_barrier|send|recv|isend|irecv|batch_isend_irecv|all_gather_base|reduce_scatter_base)"
          r"(?:_coalesced|_into_tensor|_tensor|_single|_object|_object_list|_list)*$"),
    _rule(Activity.COLLECTIVE, r"torch/distributed/_functional_collectives\.py$", r"all_|reduce_|wait|gather"),
    _rule(Activity.COLLECTIVE, r"torch/distributed/fsdp/", r"(?i)all_gather|unshard", "all_gather (FSDP)"),
    _rule(Activity.COLLECTIVE, r"torch/distributed/fsdp/", r"(?i)reduce|post_backward", "reduce_scatter (FSDP)"),
    _rule(Activity.COLLECTIVE, r"torch/nn/parallel/distributed\.py$",
          r"_sync_|_verify_|_pre_forward|_distributed_broadcast|_build_", "broadcast (DDP)"),
    _rule(Activity.COLLECTIVE, r"torch/distributed/utils\.py$", r"_sync_|_verify_", "broadcast (DDP)"),
    _rule(Activity.COLLECTIVE, r"deepspeed/comm/"),
    _rule(Activity.BACKWARD, r"torch/autograd/", r"_engine_run_backward|backward", "backward"),
    _rule(Activity.COMPILING, r"torch/(?:_inductor|_dynamo|_functorch)/|triton/(?:compiler|runtime|backends)/",
          call="torch.compile"),
    _rule(Activity.COMPILING, r"torch/utils/cpp_extension\.py$|torch/utils/file_baton\.py$", call="cpp_extension"),
    _rule(Activity.SAVE, r"torch/serialization\.py$", r"save|write|^_open_zipfile_writer|__exit__", "torch.save"),
    _rule(Activity.LOAD, r"torch/serialization\.py$", r"load|read|^_open_zipfile_reader", "torch.load"),
    _rule(Activity.SAVE, r"torch/distributed/checkpoint/", r"save|write", "distributed checkpoint"),
    _rule(Activity.LOAD, r"torch/distributed/checkpoint/", r"load|read", "distributed checkpoint"),
    _rule(Activity.SAVE, r"safetensors/", r"save", "safetensors"),
    _rule(Activity.LOAD, r"safetensors/", r"load|open", "safetensors"),
    _rule(Activity.DATA_LOADING, r"torch/utils/data/", call="the DataLoader"),
    _rule(Activity.DATA_LOADING, r"/datasets/(?:arrow_|iterable_|builder|load|packaged)", call="datasets"),
    _rule(Activity.FILE_LOCK, r"/filelock/", call="a lock file"),
    _rule(Activity.RING, RING_FILE, r"^acquire_write$", FULL_RING),
    _rule(Activity.RING, RING_FILE, r"^acquire_read$|^dequeue$", "a message in the shared-memory ring"),
    _rule(Activity.SUBPROCESS, r"/subprocess\.py$", call="a subprocess"),
    _rule(Activity.LOCK, r"/threading\.py$", r"acquire|wait|join"),
    _rule(Activity.LOCK, r"/queue\.py$|/concurrent/futures/|/multiprocessing/(?:queues|connection|synchronize)\.py$"),
    _rule(Activity.GPU_WORK, r"torch/cuda/(?:__init__|streams)\.py$", r"synchronize", "the GPU"),
    _rule(Activity.NETWORK_IO, r"/(?:ssl|socket|http/client)\.py$|/urllib3/|/requests/|/aiohttp/|/botocore/|/fsspec/"),
    _rule(Activity.IMPORTING, r"^<frozen importlib|/importlib/", call="import"),
)  # fmt: skip
# What surrounds a call, in libraries and in the job's own functions; the innermost decides.
SURROUNDINGS = (
    _rule(Activity.COMPILING, r"torch/(?:_inductor|_dynamo)/|torch/utils/cpp_extension\.py$"),
    _rule(Activity.SAVE, r"torch/serialization\.py$|safetensors/|torch/distributed/checkpoint/", "save"),
    _rule(Activity.SAVE, r".", r"(?i)(?:^|[._])(?:on_)?_?(?:save|dump|write|store)_?(?:model|state|check|ckpt|sharded|"
          r"weights|pretrained|optimizer|$)|(?:^|[._])_?checkpoint(?!_wrapper|_forward)"),
    _rule(Activity.EVALUATION, r".", r"(?i)(?:^|[._])(?:on_)?_?(?:eval|evaluate|evaluation|validate|validation|predict)"
          r"(?:$|_loop|_step|_epoch|_model|_batch)"),
    _rule(Activity.DATA_LOADING, r"torch/utils/data/"),
    _rule(Activity.DATA_LOADING, r".", r"(?i)(?:^|[._])(?:next_batch|get_batch|load_data|preprocess|tokenize)"),
)  # fmt: skip
# How a serving engine waits for the next request: the loop, and what it calls; and the release that was looked at.
IDLE_LOOPS = (
    (_rule(Activity.IDLE, r"/vllm/v1/executor/multiproc_executor\.py$", r"^worker_busy_loop$"),  # vLLM 0.32.0
     _rule(Activity.IDLE, RING_FILE, r"^dequeue$")),
    (_rule(Activity.IDLE, r"/vllm/v1/engine/core\.py$", r"^_process_input_queue$"),  # vLLM 0.32.0
     _rule(Activity.IDLE, r"/queue\.py$", r"^get$")),
)  # fmt: skip
ENGINE = re.compile(r"/(?:vllm|sglang)/(?!.*-packages/).*\.py$")  # an installed server has no line of the user's own
IDLE_CALL = "the request loop"
# What something else is done by: a lock in the DataLoader is its wait for data.
MEANS = (Activity.LOCK, Activity.SUBPROCESS, Activity.IMPORTING)
IMPORT_FILES = re.compile(r"^<frozen importlib|/importlib/")


@dataclass(frozen=True, slots=True)
class StackPlace:
    """The activity of a thread according to its Python stack, with the call and the line in the job's code."""

    activity: Activity
    doing: str  # the call
    at: str = ""  # the job's own line: `train.py:212, train_step`
    within: Activity | None = None

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> StackPlace:
        """Return the activity of a thread with these frames, innermost first.

        The activity is PYTHON if no library call shows another activity.
        """
        for called, caller in pairwise(frames):
            if any(loop.fits(caller) and call.fits(called) for loop, call in IDLE_LOOPS):
                return cls(Activity.IDLE, IDLE_CALL, str(caller))
        own = next((frame for frame in frames if not LIBRARY.search(frame.file)), None)
        first = own or next((frame for frame in frames if ENGINE.search(frame.file)), None) or next(iter(frames), None)
        at, name = (str(first), first.short_name) if first else ("", "")
        within = next((rule.activity for frame in frames for rule in SURROUNDINGS if rule.fits(frame)), None)
        for depth, frame in enumerate(frames):
            if frame is own:  # unless it is the body of a module that is being imported: then the import decides
                is_imported = any(IMPORT_FILES.search(each.file) for each in frames[depth + 1 :])
                if own.function != "<module>" or not is_imported:
                    break
            if LIBRARY.search(frame.file) and (rule := next((each for each in RULES if each.fits(frame)), None)):
                activity = within if within and rule.activity in MEANS else rule.activity
                return cls(activity, rule.call or frame.short_name.lstrip("_"), at, within)
        if within in (Activity.SAVE, Activity.EVALUATION, Activity.DATA_LOADING):
            return cls(within, name, at)
        return cls(Activity.PYTHON, name, at)
