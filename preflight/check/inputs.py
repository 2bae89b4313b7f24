"""Read the input files of a check: a policy, a baseline, results of perftest, and earlier reports."""

from __future__ import annotations

from datetime import date

from preflight.errors import UsageError
from preflight.judge.check import all_checks
from preflight.judge.policy import parse_policy
from preflight.model.baseline import Baseline
from preflight.model.facts import NodeFacts
from preflight.model.input_limits import BASELINE, PERFTEST, POLICY, REPORT
from preflight.model.parts import parts_of_node
from preflight.model.perftest import LinkTest, parse_perftest
from preflight.model.policy import Policy
from preflight.model.report import Report
from preflight.model.saved_report import load_baseline, load_report
from preflight.show.text import line
from preflight.system.files import why
from preflight.system.inputs import read_input
from preflight.system.own_inputs import newest_first, read_own_input
from preflight.system.ownership import opened_own
from preflight.system.streams import to_stderr

MOST_REPORTS = 20  # only the last few of a part are ever looked at
LEAST_BYTES = 16 << 10  # to open a small file costs as much


def read_policy(path: str | None) -> Policy | None:
    """Return the policy in the TOML file `path`, or None if `path` is None.

    Raise MalformedInput if an entry is invalid.
    """
    if path is None:
        return None
    names = {check.name for check in all_checks()}
    return parse_policy(read_input(path, POLICY), path, names, date.today().isoformat())


def read_baseline(path: str | None) -> Baseline | None:
    """Return the speeds of known-good nodes from the baseline file `path`, or None if `path` is None."""
    return None if path is None else load_baseline(read_input(path, BASELINE), path)


def read_fabric(path: str | None) -> tuple[LinkTest, ...]:
    """Return the link tests in `path`, a file with the output of perftest. Return () if `path` is None."""
    return () if path is None else parse_perftest(read_input(path, PERFTEST), path)


def read_history(path: str | None, node: NodeFacts, *, is_quiet: bool) -> tuple[Report, ...]:
    """Return the earlier reports in the folder `path` about this node's GPUs or RDMA ports, the oldest first.

    Return () if `path` is None. Raise UsageError if other users can write to the folder.
    """
    # A file that is not a preflight report is skipped. The files that are read are together no larger than the size
    # limit of one report, and newer files are preferred. Host names are not compared, because the host name changes
    # with each pod.
    if path is None:
        return ()
    parts, room = parts_of_node(node), REPORT.most_bytes
    found: dict[tuple[str, tuple[str, ...]], Report] = {}
    left_out = []
    try:
        with opened_own(path, is_folder=True) as folder:
            for name, size in newest_first(folder):
                try:
                    cost = max(size, LEAST_BYTES)
                    if cost > room:
                        raise UsageError(f"{name}: beyond the {REPORT.most_bytes >> 20} MiB that are read")
                    room -= cost
                    text = read_own_input(name, REPORT, folder)
                    if not any(part in text for part in parts):
                        continue
                    report = load_report(text, name)
                except UsageError as error:
                    left_out.append(line(str(error)))
                    continue
                if parts & set(report.parts_tried):
                    found[report.created_at, report.parts_tried] = report  # a copy of it is no other run
                if len(found) == MOST_REPORTS:
                    break
    except (OSError, ValueError) as error:
        advice = "give a folder of earlier reports that is yours or root's and that no one else may write"
        raise UsageError(f"--history {path}: {why(error)}; {advice}") from None
    if left_out and not is_quiet:
        to_stderr(f"preflight: --history {path}: {len(left_out)} left out, the newest: {left_out[0]}\n")
    return tuple(sorted(found.values(), key=lambda report: report.created_at))
