"""The directory that everyone writes to: all write, then each reads another's file; twice, so that stale data shows."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from preflight.errors import MalformedInput
from preflight.launch.rounds import Round, Told
from preflight.model.between import NodeStorage, SharedStorage
from preflight.model.codec import decode
from preflight.model.gap import Gap

FILE_BYTES = 64 << 20
AGAIN_BYTES = 4 << 20
WORK_S = 3.0  # for writing; the rest of the limit is for fsync
LIMIT_S = 12.0
SWEEP_S = 3.0
APPEAR_S = 3.0  # for a file that another node has synced to be seen
NOT_ASKED = Gap("no --checkpoint-dir was given")


@dataclass(frozen=True, slots=True)
class Wrote:
    """What a node's child tells of its own file."""

    done_bytes: int = 0
    took_s: float = 0.0
    checksum: str = ""
    problem: str = ""
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """And of another node's."""

    done_bytes: int = 0
    took_s: float = 0.0
    checksum: str = ""
    problem: str = ""
    is_missing: bool = False
    waited_s: float = 0.0


Storing = Generator[Round, dict[int, Told], SharedStorage | Gap]


def ask_storage(hosts: Mapping[int, str], run_id: str, directory: str) -> Storing:
    """Have every node write, sync and read back another node's file, twice; remove the files."""
    if not directory:
        return NOT_ASKED
    stem = hashlib.sha256(run_id.encode()).hexdigest()[:12]
    names = {rank: f".preflight-{stem}-{rank}" for rank in hosts}
    seen = {rank: NodeStorage(rank, hosts[rank], reads_of=(rank + 1) % len(hosts)) for rank in hosts}
    first = yield from _ask_to_write(directory, names, FILE_BYTES)
    reads = yield from _ask_to_read(directory, names, seen, first)
    for rank, node in seen.items():
        seen[rank] = _first_seen(node, first[rank], first[node.reads_of], reads.get(rank))
    again = yield from _ask_to_write(
        directory, {rank: names[rank] for rank in hosts if first[rank].checksum}, AGAIN_BYTES
    )
    reads = yield from _ask_to_read(directory, names, seen, again)
    for rank, node in seen.items():
        seen[rank] = _seen_again(node, first[node.reads_of], again.get(node.reads_of, Wrote()), reads.get(rank))
    yield Round("sweep", {rank: {} for rank in hosts}, SWEEP_S)
    return SharedStorage(
        directory, min((w.done_bytes for w in first.values() if w.checksum), default=0), tuple(seen.values()),
        _together(tuple(first.values())), _together_read(tuple(seen.values()), first),
    )  # fmt: skip


def _ask_to_write(
    directory: str, names: Mapping[int, str], size_bytes: int
) -> Generator[Round, dict[int, Told], dict[int, Wrote]]:
    question = {"directory": directory, "size_bytes": size_bytes, "work_s": WORK_S, "nodes": len(names)}
    answers = (
        (yield Round("write", {rank: question | {"name": names[rank]} for rank in names}, LIMIT_S)) if names else {}
    )
    return {rank: _decoded(Wrote, told) for rank, told in answers.items()}


def _ask_to_read(
    directory: str, names: Mapping[int, str], nodes: Mapping[int, NodeStorage], wrote: Mapping[int, Wrote]
) -> Generator[Round, dict[int, Told], dict[int, Read]]:
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
    answers = (yield Round("read", questions, LIMIT_S)) if questions else {}
    return {rank: _decoded(Read, told) for rank, told in answers.items()}


def _first_seen(node: NodeStorage, own: Wrote, theirs: Wrote, read: Read | None) -> NodeStorage:
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


def _seen_again(node: NodeStorage, old: Wrote, new: Wrote, read: Read | None) -> NodeStorage:
    """A file that was written anew must be read anew: a cache that still shows the first one is stale."""
    if read is None or node.read_problem or not new.checksum:
        return node
    if not read.problem and read.checksum == new.checksum:
        return node
    is_stale = read.checksum == old.checksum and bool(old.checksum)
    told = (
        read.problem or f"{read.waited_s:.1f} s after it was rewritten and synced it still holds what was there before"
    )
    return replace(node, read_problem=told, is_stale=is_stale, is_missing=read.is_missing)


def _together(wrote: tuple[Wrote, ...]) -> float | Gap:
    """Return the rate of all together: they began at the same time, so the slowest says when all were through."""
    if not all(each.checksum for each in wrote):
        return Gap("not every node could write")
    return _rate(sum(each.done_bytes for each in wrote), max(each.took_s for each in wrote))


def _together_read(nodes: tuple[NodeStorage, ...], wrote: Mapping[int, Wrote]) -> float | Gap:
    sizes = [wrote[node.reads_of].done_bytes for node in nodes]
    rates = [node.read_gb_s for node in nodes]
    times = [size / rate / 1e9 for size, rate in zip(sizes, rates, strict=True) if not isinstance(rate, Gap) and rate]
    if len(times) < len(nodes):
        return Gap("not every node could read")
    return _rate(sum(sizes), max(times))


def _rate(done_bytes: int, took_s: float) -> float:
    return done_bytes / max(took_s, 1e-6) / 1e9


def _decoded(kind: Any, told: Told) -> Any:
    if told.failure:
        return kind(problem=told.failure)
    try:
        return decode(kind, told.value)
    except MalformedInput as error:
        return kind(problem=f"its answer can't be read: {error}")
