"""`preflight gpu-report`: run the tests that need a real GPU, and pack the results for an issue."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import typer

from preflight.check.options import slurm_words
from preflight.cli import commands
from preflight.cli.output import PROGRAM, check_outputs
from preflight.errors import LaunchError, UsageError
from preflight.facts.run import probe_node
from preflight.gpu_report.parts import parts
from preflight.gpu_report.report import PartResult, run_parts
from preflight.judge.gpus_of_node import is_busy, name_of
from preflight.model.facts import Gpu, NodeFacts, known, known_or
from preflight.model.units import counted, duration_text
from preflight.search.backend_choice import choose_backend, has_nvidia_hardware
from preflight.system.kernel_queries import live_machine
from preflight.system.streams import to_stdout

DEADLINE_S = 600.0
GOOD = ("passed", "not run")
REMOVED = "Names of hosts, users and\njobs, addresses, UUIDs and serial numbers were removed."


def gpu_report(asked: commands.GpuReportOptions) -> None:
    """Run `preflight gpu-report` on this node: run all tests, write the archive, and exit with 0 or 1."""
    slurm_words(asked.slurm_args, asked.on)
    check_outputs(asked.output)
    results = pack(asked, asked.output, to_stdout)
    ran = sum(result.outcome != "not run" for result in results)
    size_mb = os.path.getsize(asked.output) / 1e6
    to_stdout(
        f"\n{asked.output} ({size_mb:.1f} MB) has the results of {counted(ran, 'part')}. {REMOVED}\n"
        f"Next  look into it (`tar xzf {asked.output}`), then attach it to an issue of {PROGRAM}.\n"
    )
    raise typer.Exit(0 if all(result.outcome in GOOD for result in results) else 1)


def pack(asked: commands.GpuReportOptions, archive: str, say: Callable[[str], object]) -> tuple[PartResult, ...]:
    """Run all parts of the report on this node, write the archive, and return the results in order.

    The function `say` gets one line before the first part and one line after each part.
    """
    # `archive` is the path of the archive.
    until = time.monotonic() + limit_s(asked)
    node, _ = probe_node(live_machine())
    gpus = free_gpus(node, asked.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    listed = parts()
    names = ", ".join(dict.fromkeys(name_of(gpu) for gpu in gpus))
    indices = ",".join(str(gpu.nvml_index) for gpu in gpus)
    say(f"{len(listed)} parts on GPU {indices} ({names}), at most {duration_text(limit_s(asked))}\n")

    def tell(result: PartResult) -> None:
        why = f"  {result.why}" if result.why else ""
        say(f"  {result.name:<16}{result.outcome:<11}{result.took_s:>5.0f} s{why}\n")

    uuids = [known(gpu.uuid) for gpu in gpus]
    return run_parts(listed, uuids, archive, until, os.environ, tell)


def limit_s(asked: commands.GpuReportOptions) -> float:
    """Return the time limit for all parts together, in seconds.

    The limit is the value of `--deadline`, or DEADLINE_S by default.
    """
    return asked.deadline or DEADLINE_S


def free_gpus(node: NodeFacts, asked: str | None, visible: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs to use, as chosen by --gpus (`asked`) and CUDA_VISIBLE_DEVICES (`visible`).

    Either choice can be None. Raise LaunchError if CUDA can't use any GPU, and UsageError if another process uses a
    chosen GPU.
    """
    if not has_nvidia_hardware(node):
        raise LaunchError("this machine shows no NVIDIA GPU (none on the PCI bus, no /dev/nvidia*, none in NVML)")
    path = choose_backend("nccl", asked, None, visible, node)
    if path.blocked:
        raise LaunchError(f"no GPU can be used: {path.blocked}")
    for gpu in path.gpus:
        if is_busy(gpu):
            pids = ", ".join(str(each.pid) for each in known_or(gpu.processes, ()))
            who = f" (pid {pids})" if pids else ""
            raise UsageError(f"GPU {gpu.nvml_index} is in use{who}; wait, or name free GPUs with --gpus")
    return path.gpus
