"""Which GPUs of this node a job's launcher takes, as its command line says: the check tries just these.

The answer is what its ranks see in CUDA_VISIBLE_DEVICES: rank k of torchrun has the k-th of them; accelerate's
--gpu_ids and DeepSpeed's --include and --num_gpus put others in the place of those that are inherited.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from preflight.jobrun.order import VISIBLE
from preflight.model.gpu import GPU_FILE

TORCHRUN, ACCELERATE, DEEPSPEED = "torchrun", "accelerate", "deepspeed"
MODULES = {
    "torch.distributed.run": TORCHRUN, "torch.distributed.launch": TORCHRUN,
    "accelerate.commands.launch": ACCELERATE, "deepspeed.launcher.runner": DEEPSPEED,
}  # fmt: skip
PROGRAMS = {TORCHRUN: TORCHRUN, ACCELERATE: ACCELERATE, "accelerate-launch": ACCELERATE, DEEPSPEED: DEEPSPEED}
LIST = re.compile(r"\d{1,4}(?:,\d{1,4})*", re.ASCII)


def gpus_here() -> int:
    """Return for how many GPUs there is a device file."""
    return sum(GPU_FILE.fullmatch(name) is not None for name in os.listdir("/dev"))


def gpus_of_job(command: Sequence[str], environ: Mapping[str, str], present: int) -> str:
    """Return the CUDA_VISIBLE_DEVICES of a job's ranks; "" where it takes all of them, or does not say."""
    found = next(_launchers(command), None)
    if found is None:
        return ""
    launcher, options = found[0], dict(_options(command[found[1] :]))
    count = _number(options.get("nproc_per_node", environ.get("PET_NPROC_PER_NODE", "")))
    listed, inherited = "", environ.get(VISIBLE)
    if launcher == ACCELERATE:
        listed = options.get("gpu_ids", "")
        count = _number(options.get("num_processes", "")) // max(1, _number(options.get("num_machines", "")))
    elif launcher == DEEPSPEED:
        listed = options.get("include", "").removeprefix("localhost:")
        count = _number(options.get("num_gpus", ""))
        inherited = None if count else inherited
    if LIST.fullmatch(listed):
        return listed
    names = inherited.split(",") if inherited is not None else [str(place) for place in range(present)]
    return ",".join(names[:count]) if 0 < count < len(names) else ""


def _launchers(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each launcher, and where its options begin."""
    for place, word in enumerate(command):
        name = MODULES.get(word) if command[place - 1] == "-m" else PROGRAMS.get(os.path.basename(word))
        if name is not None:
            yield name, place + 1


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options before the script with their values; a dash in a name is as good as an underscore."""
    for place, word in enumerate(words):
        if word.endswith(".py"):
            return
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            yield name.replace("-", "_"), value if equals else "".join(words[place + 1 : place + 2])


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,4}", text, re.ASCII) else 0
