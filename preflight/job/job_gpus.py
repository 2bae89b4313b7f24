"""Find out which GPUs of this node a job's launcher uses, from the command line of the launcher.

The check tests only these GPUs.
"""
# The result is the CUDA_VISIBLE_DEVICES of the job's ranks. Rank k of torchrun uses entry k. accelerate's --gpu_ids and
# DeepSpeed's --include and --num_gpus replace the inherited list. vLLM and SGLang use the product of their parallel
# sizes.

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from preflight.job.order import VISIBLE
from preflight.model.engine_options import Engine
from preflight.model.gpu import GPU_FILE
from preflight.model.launchers import LAUNCHERS, GpuOptions

STARTED_BY = {program: each for each in LAUNCHERS if each.gpus for program in each.programs}
MODULES = {module: each for each in LAUNCHERS if each.gpus for module in each.modules}
LIST = re.compile(r"\d{1,4}(?:,\d{1,4})*", re.ASCII)


def gpus_here() -> int:
    """Return the number of GPUs of this machine that have a device file in /dev."""
    return sum(GPU_FILE.fullmatch(name) is not None for name in os.listdir("/dev"))


def gpus_of_job(command: Sequence[str], environ: Mapping[str, str], present: int) -> str:
    """Return the CUDA_VISIBLE_DEVICES of the ranks that `command` starts.

    Return "" if the command uses all GPUs or does not select GPUs.
    """
    # `present` is the number of GPUs in this machine.
    found = next(_launchers(command), None)
    if found is None:
        return ""
    said, options = found.gpus, dict(_options(command[found.place :], found.gpus.has_script))
    listed, inherited = options.get(said.listed, "").removeprefix("localhost:"), environ.get(VISIBLE)
    if LIST.fullmatch(listed):
        return listed
    replaced = {name for option, names in said.replaced if option in options for name in names}
    counts = [_number(options[name]) for name in said.counts if name in options and name not in replaced]
    count = math.prod(counts) if counts else _number(environ.get(said.count_variable, ""))
    count //= max([1, *(_number(options.get(name, "")) for name in said.nodes)])
    if inherited is None or (count and said.ignores_visible):
        names = [str(place) for place in range(present)]
    else:
        names = inherited.split(",")
    chosen = names[_number(options.get(said.first, "")) :: _number(options.get(said.step, "")) or 1][:count]
    return ",".join(chosen) if 0 < count < len(names) and len(chosen) == count else ""


def engine_of_job(command: Sequence[str]) -> Engine | None:
    """Return the serving engine that `command` starts, or None if the command starts no serving engine."""
    found = next(_launchers(command), None)
    return next((each for each in Engine if found is not None and each.value == found.name), None)


class _LauncherInLine(NamedTuple):
    """A launcher that was found in a command.

    `gpus` has the launcher's options that select GPUs. `place` is the index of the word at which the launcher's options
    begin.
    """

    name: str
    gpus: GpuOptions
    place: int


def _launchers(command: Sequence[str]) -> Iterator[_LauncherInLine]:
    """Yield each launcher in a command, the outermost first."""
    for place, word in enumerate(command):
        name = os.path.basename(word)
        with_verb = " ".join([name, *command[place + 1 : place + 2]])
        is_module = command[place - 1] == "-m"
        known = MODULES.get(word) if is_module else STARTED_BY.get(name) or STARTED_BY.get(with_verb)
        if known is not None and known.gpus is not None:
            yield _LauncherInLine(known.name, known.gpus, place + 1)


def _options(words: Sequence[str], has_script: bool) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for each option in `words`.

    If `has_script` is true, the options end at the name of a Python script. Dashes in option names become underscores.
    """
    for place, word in enumerate(words):
        if has_script and word.endswith(".py"):
            return
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            yield name.replace("-", "_"), value if equals else "".join(words[place + 1 : place + 2])


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,4}", text, re.ASCII) else 0
