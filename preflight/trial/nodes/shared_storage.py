"""Test a shared directory: each node writes a file and reads another node's file. A second round finds stale data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from preflight.errors import MalformedInput
from preflight.model.codec import decode
from preflight.model.gap import Gap
from preflight.model.storage import NodeStorage, SharedStorage
from preflight.trial.nodes.queries import Asking, Query, Reply, ask

FILE_BYTES = 64 << 20
AGAIN_BYTES = 4 << 20
WORK_S = 3.0  # for writing; the rest of the limit is for fsync
LIMIT_S = 12.0
SWEEP_S = 3.0
APPEAR_S = 3.0  # time until a file that another node has synced is visible
NOT_ASKED = Gap("no --checkpoint-dir was given")


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of writing or reading one test file. `problem` is "" if there was no error."""

    done_bytes: int = 0
    took_s: float = 0.0
    checksum: str = ""
    problem: str = ""
    is_read_only: bool = False
    is_missing: bool = False
    waited_s: float = 0.0


Results = dict[int, FileResult]  # by node rank


def ask_storage(hosts: Mapping[int, str], run_id: str, directory: str) -> Asking[SharedStorage | Gap]:
    """Test a shared directory: each node writes a file and reads another node's file, in two rounds.

    If `directory` is "", the result is a Gap object.
    """
    # The files are removed at the end. The function is a generator of questions.
    if not directory:
        return NOT_ASKED
    stem = hashlib.sha256(run_id.encode()).hexdigest()[:12]
    names = {rank: f".preflight-{stem}-{rank}" for rank in hosts}
    found = {rank: NodeStorage(rank, hosts[rank], reads_of=(rank + 1) % len(hosts)) for rank in hosts}
    first = yield from _ask_to_write(directory, names, FILE_BYTES)
    reads = yield from _ask_to_read(directory, names, found, first)
    for rank, node in found.items():
        found[rank] = _first_result(node, first[rank], first[node.reads_of], reads.get(rank))
    writable = {rank: name for rank, name in names.items() if first[rank].checksum}
    again = yield from _ask_to_write(directory, writable, AGAIN_BYTES)
    reads = yield from _ask_to_read(directory, names, found, again)
    for rank, node in found.items():
        new = again.get(node.reads_of, FileResult())
        found[rank] = _second_result(node, first[node.reads_of], new, reads.get(rank))
    yield Query("sweep", {rank: {} for rank in hosts}, SWEEP_S)
    return SharedStorage(
        directory, min((w.done_bytes for w in first.values() if w.checksum), default=0), tuple(found.values()),
        _write_together(tuple(first.values())), _read_together(tuple(found.values()), first),
    )  # fmt: skip


def _ask_to_write(directory: str, names: Mapping[int, str], size_bytes: int) -> Asking[Results]:
    question = {"directory": directory, "size_bytes": size_bytes, "work_s": WORK_S, "nodes": len(names)}
    answers = yield from ask("write", {rank: question | {"name": name} for rank, name in names.items()}, LIMIT_S)
    return {rank: _decoded(reply) for rank, reply in answers.items()}


def _ask_to_read(
    directory: str, names: Mapping[int, str], nodes: Mapping[int, NodeStorage], wrote: Results
) -> Asking[Results]:
    questions = {
        rank: {
            "directory": directory,
            "name": names[node.reads_of],
            "checksum": wrote[node.reads_of].checksum,
            "appear_s": APPEAR_S,
        }
        for rank, node in nodes.items()
        if node.reads_of in wrote and wrote[node.reads_of].checksum
    }
    answers = yield from ask("read", questions, LIMIT_S)
    return {rank: _decoded(reply) for rank, reply in answers.items()}


def _first_result(node: NodeStorage, own: FileResult, theirs: FileResult, read: FileResult | None) -> NodeStorage:
    wrote = replace(
        node,
        write_problem=own.problem,
        is_read_only=own.is_read_only,
        write_gb_s=_rate(own.done_bytes, own.took_s) if own.checksum else Gap(own.problem or "nothing was written"),
    )
    if read is None:
        return replace(wrote, read_gb_s=Gap("the other node wrote nothing"))
    problem = read.problem
    if not problem and read.checksum != theirs.checksum:
        problem = f"it holds other data than was written: {read.done_bytes} bytes of {theirs.done_bytes}"
    return replace(
        wrote,
        read_problem=problem,
        is_missing=read.is_missing,
        appeared_after_s=read.waited_s,
        read_gb_s=Gap(problem) if problem else _rate(read.done_bytes, read.took_s),
    )


def _second_result(node: NodeStorage, old: FileResult, new: FileResult, read: FileResult | None) -> NodeStorage:
    """Return the node's result after the second round.

    If the new content of a rewritten file was not read, the result has a problem. If the old content was read, the
    node's cache is stale.
    """
    if read is None or node.read_problem or not new.checksum:
        return node
    if not read.problem and read.checksum == new.checksum:
        return node
    is_stale = read.checksum == old.checksum and bool(old.checksum)
    stale = f"{read.waited_s:.1f} s after it was rewritten and synced it still holds what was there before"
    problem = read.problem or stale
    return replace(node, read_problem=problem, is_stale=is_stale, is_missing=read.is_missing)


def _write_together(wrote: tuple[FileResult, ...]) -> float | Gap:
    """Return the write rate of all nodes together in GB/s, or a Gap if a node could not write.

    All nodes began at the same time, so the slowest node sets the duration.
    """
    if not all(each.checksum for each in wrote):
        return Gap("not every node could write")
    return _rate(sum(each.done_bytes for each in wrote), max(each.took_s for each in wrote))


def _read_together(nodes: tuple[NodeStorage, ...], wrote: Results) -> float | Gap:
    sizes = [wrote[node.reads_of].done_bytes for node in nodes]
    rates = [node.read_gb_s for node in nodes]
    times = [size / rate / 1e9 for size, rate in zip(sizes, rates, strict=True) if not isinstance(rate, Gap) and rate]
    if len(times) < len(nodes):
        return Gap("not every node could read")
    return _rate(sum(sizes), max(times))


def _rate(done_bytes: int, took_s: float) -> float:
    return done_bytes / max(took_s, 1e-6) / 1e9


def _decoded(reply: Reply) -> FileResult:
    if reply.failure:
        return FileResult(problem=reply.failure)
    try:
        return decode(FileResult, reply.value)
    except MalformedInput as error:
        return FileResult(problem=f"its answer can't be read: {error}")
