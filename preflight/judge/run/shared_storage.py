"""A checkpoint directory that nodes do not share, can't all write to, or see in different states loses checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.ways import first_hosts
from preflight.model.between import NodeStorage, SharedStorage
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gap import Gap


def judge(case: Case) -> Iterator[Finding]:
    """Yield a FAIL per thing that is wrong with the directory, with the nodes that it is wrong on."""
    if case.between is None or isinstance(case.between.storage, Gap):
        return
    storage = case.between.storage
    hosts = {node.node_rank: node.host for node in storage.nodes}
    kinds: dict[str, list[NodeStorage]] = {}
    for node in storage.nodes:
        for kind in _kinds(node):
            kinds.setdefault(kind, []).append(node)
    for kind, nodes in kinds.items():
        problem, fix = WORDS[kind]
        is_write = kind in ("read-only", "unwritable")
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.FAIL,
            subject=f"{storage.directory} on {first_hosts(node.host for node in nodes)}",
            problem=problem,
            fix=fix,
            evidence=tuple(
                Evidence(
                    f"{node.host} writes" if is_write else f"{node.host} reads {hosts[node.reads_of]}'s file",
                    node.write_problem if is_write else node.read_problem,
                    _source(storage),
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


def _source(storage: SharedStorage) -> str:
    return f"a synced file of each node in {storage.directory}"


WORDS = {
    "read-only": (
        "it can't be written there: rank 0 may, and every other rank's shard is lost",
        "mount it read-write (`mount | grep DIR`), or allow this user to write",
    ),
    "unwritable": ("writing there fails", "what the evidence says; then run again"),
    "missing": (
        "another node's synced file is not there: the nodes do not share this directory",
        "give a directory on the shared file system, or mount it on these nodes (`findmnt -T DIR`)",
    ),
    "stale": (
        "a file that another node rewrote and synced still shows its old content",
        "mount without long attribute caching (NFS: `actimeo=1` or `lookupcache=positive`), or write each checkpoint "
        "to a new name",
    ),
    "unreadable": ("another node's file can't be read there", "what the evidence says; then run again"),
}

CHECK = RunCheck(
    name="shared-storage",
    promise="every node writes to the checkpoint directory and reads what the others wrote",
    blame=Blame.CONFIGURATION,
    reads=(),
    blind_to="directories that --checkpoint-dir does not name, and caches that last longer than the test",
    judge=judge,
)
