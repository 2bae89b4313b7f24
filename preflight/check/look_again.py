"""Read the parts of the machine that may have changed, after the ranks have ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from preflight.check.run_record import RunRecord
from preflight.facts.counters import probe_outside_events
from preflight.facts.lookback import probe_history
from preflight.judge.gpus_of_node import why_disturbed
from preflight.model.counters import OutsideEvent, events_between
from preflight.model.facts import Gap
from preflight.model.gpu_test import Hardware
from preflight.model.lookback import KernelHistory
from preflight.system.installed import installed_versions
from preflight.system.kernel_queries import live_machine
from preflight.trial.hardware_results import hardware_results

REPORT_S = 0.4  # for judging and writing


@dataclass(frozen=True, slots=True)
class LookedAgain:
    """The values that were read again after the ranks had ended.

    `disturbed` is a text that names the GPUs that another process used, or "" if no other process used a GPU.
    """

    # `hardware` has the results of the GPU tests. `outside` has the processes that the kernel killed and the requests
    # that the kernel refused during the run. `before` is the kernel log from before the run.

    disturbed: str  # why no speed counts, "" if no other process used the GPUs
    hardware: Hardware | Gap
    outside: tuple[OutsideEvent, ...]  # what the kernel did to processes here since the ranks were started
    before: KernelHistory | Gap | None  # the kernel log before the run, None unless the policy looks back
    versions: Mapping[str, str]  # of frameworks whose timeout differs by release


def look_again(run: RunRecord) -> LookedAgain:
    """Return the counters, kernel events and kernel log, read after the ranks of `run` have ended.

    If no time is left to read a value, a Gap object with the reason replaces the value.
    """
    left_s = 0.0 if run.launch.interrupted else run.ends_at() - time.monotonic() - REPORT_S
    disturbed = why_disturbed(run.path.gpus)
    earlier = run.outside_before
    return LookedAgain(
        disturbed,
        hardware_results(run.launch, run.node, run.path, run.watching, disturbed, left_s, run.request.wanted_tests),
        events_between(earlier, probe_outside_events(live_machine())) if earlier else (),
        probe_history(run.watching.machine, run.policy),
        installed_versions(("deepspeed",)),
    )
