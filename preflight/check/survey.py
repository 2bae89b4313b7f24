"""Check a machine without starting ranks, or save the values read from the machine as a file (a capture).

The input is this machine, a /sys tree, a pasted topology or an earlier capture.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from preflight.errors import NotApplicable, UnreadableFact
from preflight.facts.run import Capture, cut_short, probe_node
from preflight.judge.check import Case, CheckResults, fact_checks, run_checks
from preflight.model.collective import Collective
from preflight.model.facts import Gap, NodeFacts
from preflight.model.links import Expected
from preflight.model.other_makers import other_gpus
from preflight.search.backend_choice import has_nvidia_hardware
from preflight.search.gpus.gpu_set import chosen_gpus
from preflight.search.gpus.gpu_set_advice import GpuSetAdvice, advise_gpus
from preflight.system.known_bugs import load_known_bugs
from preflight.system.machine import Machine

READING_SHARE = 0.7  # of the time before the deadline; the rest is for judging and printing, on a busy node too
EXPECTED_BYTES = 1 << 30  # large enough that bandwidth decides


@dataclass(frozen=True, slots=True)
class Survey:
    """The values read from a node, the problems found in these values, and advice on the requested GPUs."""

    node: NodeFacts
    checked: CheckResults
    gpu_set: GpuSetAdvice | None  # None unless GPUs were asked for
    expected: Expected | Gap | None  # the healthy all-reduce of these GPUs; None unless GPUs were asked for
    cut_short: tuple[str, ...]  # the facts that were not read before the deadline


def survey_machine(machine: Machine, gpus: str | None = None, ends_at: float | None = None) -> Survey:
    """Return the values read from `machine`, and the problems found in these values.

    The function forks, so the calling process must have a single thread.
    """
    # Reading stops at `ends_at`, in seconds of the monotonic clock. `gpus` is the value of `--gpus`, or None for all
    # GPUs.
    node, _ = probe_node(machine, meanwhile=fact_checks, ends_at=_read_by(ends_at))
    return survey(node, gpus)


def _read_by(ends_at: float | None) -> float | None:
    now = time.monotonic()
    return None if ends_at is None else now + (ends_at - now) * READING_SHARE


def survey_topology(text: str, gpus: str | None = None) -> Survey:
    """Return the GPUs and links in `text`, and the problems found in these GPUs and links.

    `text` is the output of `nvidia-smi topo -m`. Raise MalformedInput if `text` is something else.
    """
    from preflight.facts.topo_facts import topology_facts  # noqa: PLC0415 - a live probe must not pay for it

    return survey(topology_facts(text), gpus)


def survey_capture(text: str, gpus: str | None = None, ends_at: float | None = None) -> Survey:
    """Return the values recorded in the capture `text`, and the problems found in these values.

    Reading stops at `ends_at`, in monotonic seconds. Raise MalformedInput if `text` is not a capture.
    """
    from preflight.facts.capture import open_capture  # noqa: PLC0415 - nor for reading captures

    replay, silent = open_capture(text)
    node, _ = probe_node(replay, silent=silent, ends_at=_read_by(ends_at))
    return survey(node, gpus)


def capture(machine: Machine) -> str:
    """Return everything that the probes read from /sys, /proc and NVML, as JSON for `--machine`.

    Names that identify the machine or its users are replaced.
    """
    from preflight.facts.capture import capture_document  # noqa: PLC0415 - nor for making them

    reads = Capture()
    probe_node(machine, capture=reads)
    return capture_document(reads)


def survey(node: NodeFacts, gpus: str | None) -> Survey:
    """Return the values read from `node`, the problems found in these values, and advice on the GPUs.

    `gpus` is the value of `--gpus`, or None for all usable GPUs. Raise UsageError if a named GPU is missing.
    """
    chosen = chosen_gpus(node, gpus)
    wants_gpus = has_nvidia_hardware(node) or bool(other_gpus(node))
    bugs = load_known_bugs() if wants_gpus else ()  # a quick probe must not pay for it
    case = Case((node,), (), "nccl", 0, wants_gpus=wants_gpus, gpus=chosen, bugs=bugs)
    checked = run_checks(fact_checks(), case)
    if gpus is None:
        return Survey(node, checked, None, None, cut_short(node))
    return Survey(node, checked, _advice(node, chosen), _expected(node, chosen), cut_short(node))


def _advice(node: NodeFacts, chosen: tuple[int, ...]) -> GpuSetAdvice | None:
    try:
        return advise_gpus(node, chosen)
    except UnreadableFact:
        return None  # the check gpu-set says why


def _expected(node: NodeFacts, chosen: tuple[int, ...]) -> Expected | Gap:
    from preflight.search.gpus.link_speeds import expected_busbw  # noqa: PLC0415 - only where GPUs were asked for
    from preflight.system.links import load_links  # noqa: PLC0415

    try:
        return expected_busbw(load_links(), node, chosen, Collective.ALL_REDUCE, EXPECTED_BYTES)
    except (NotApplicable, UnreadableFact) as error:
        return Gap(str(error))
