from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import first_hosts
from preflight.judge.workarounds import ONE_NODE
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gap import Gap
from preflight.model.storage import NodeStorage


@run_check("checkpoint-dir", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("storage",))
def checkpoint_dir(case: Case) -> Findings:
    """Files in the directory of --checkpoint-dir can be written, synced and read back.

    Yields a WARN if files could not be written or read back.

    Can't see: files larger than the few that were tried, and what other nodes do to the directory.
    """
    # If the checkpoint directory can't be written, the job is lost at its first checkpoint. The measured speed is used
    # for the safe timeout.
    storage = case.storage
    if storage is None:
        raise NotApplicable("no --checkpoint-dir was given")
    speeds = {"written": storage.write_one_bytes_per_s, "read back": storage.read_one_bytes_per_s}
    for how, speed in speeds.items():
        if isinstance(speed, Gap):
            yield checkpoint_dir.finding(
                Severity.WARN,
                storage.directory,
                f"a file could not be {how} there: {speed.reason}",
                "check `df -h DIR`, `quota`, `mount | grep DIR` and this user's permissions, then run `preflight "
                "timeout --checkpoint-dir DIR`",
                Evidence("write test", speed.reason, f"a synced file in {storage.directory}"),
            )
            return  # what could not be written can't be read either


@run_check("shared-storage", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=())
def shared_storage(case: Case) -> Findings:
    """Every node writes to the checkpoint directory and reads what the others wrote.

    Yields a FAIL for each problem, with the nodes that have the problem.

    Can't see: directories that --checkpoint-dir does not name, and caches that last longer than the test.
    """
    # Checkpoints are lost if the nodes do not share the directory, or if a node can't write to the directory.
    if case.between is None:
        raise NotApplicable(ONE_NODE)
    if isinstance(case.between.storage, Gap):
        raise NotApplicable(case.between.storage.reason)
    storage = case.between.storage
    hosts = {node.node_rank: node.host for node in storage.nodes}
    kinds: dict[str, list[NodeStorage]] = defaultdict(list)
    for node in storage.nodes:
        for kind in _kinds(node):
            kinds[kind].append(node)
    for kind, nodes in kinds.items():
        problem, fix = WORDS[kind]
        is_write = kind in ("read-only", "unwritable")
        yield shared_storage.finding(
            Severity.FAIL,
            f"{storage.directory} on {first_hosts(node.host for node in nodes)}",
            problem,
            fix,
            *(
                Evidence(
                    f"{node.host} writes" if is_write else f"{node.host} reads {hosts[node.reads_of]}'s file",
                    node.write_problem if is_write else node.read_problem,
                    f"a synced file of each node in {storage.directory}",
                )
                for node in nodes[:8]
            ),
        )


def _kinds(node: NodeStorage) -> Iterator[str]:
    if node.write_problem:
        yield "read-only" if node.is_read_only else "unwritable"
    if node.is_stale:
        yield "stale"
    elif node.is_missing:
        yield "missing"
    elif node.read_problem:
        yield "unreadable"


WORDS = {
    "read-only": (
        "these nodes can't write there, so the checkpoint shards of their ranks are lost",
        "mount the directory read-write (`mount | grep DIR`), or allow this user to write",
    ),
    "unwritable": ("these nodes can't write there", "repair the error in the evidence, then rerun"),
    "missing": (
        "another node's synced file is missing, so the nodes do not share this directory",
        "name a directory on a shared file system, or mount that file system on these nodes (`findmnt -T DIR`)",
    ),
    "stale": (
        "a file that another node rewrote and synced still shows its old content",
        "mount without long attribute caching (NFS: `actimeo=1` or `lookupcache=positive`), or write each checkpoint "
        "to a new name",
    ),
    "unreadable": ("these nodes can't read another node's file", "repair the error in the evidence, then rerun"),
}
