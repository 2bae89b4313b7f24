"""Logs for tests: composed lines of the formats that torch and NCCL print, and the corpus where it is at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from preflight.explain.explain_logs import Log, explain
from preflight.model.explanation import Explanation
from tests.shared import LOGS

SEEDS = Path(__file__).parent / "seeds"


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled log of the corpus."""

    name: str
    label: str
    also: tuple[str, ...]
    confirmed: bool

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return (LOGS / f"{self.name}.log").read_bytes()

    def accepts(self, cause: str) -> bool:
        """Tell whether a cause is the label or a neighbour that the corpus says is not wrong."""
        return cause == self.label or cause in self.also


def corpus() -> list[Case]:
    """Return the labelled logs, none where the corpus is not here."""
    cases = []
    for path in sorted(LOGS.glob("*.json")):
        about = json.loads(path.read_text())
        cases.append(Case(path.stem, about["label"], tuple(about["also_acceptable"]), about["confirmed"]))
    return cases


def explain_bytes(data: bytes, name: str = "job.log") -> Explanation:
    """Explain one log."""
    return explain([Log(name, [data])])


def cause_of(data: bytes) -> str:
    """Return the first cause, the verdict where none is named."""
    explanation = explain_bytes(data)
    return explanation.causes[0].cause if explanation.causes else explanation.verdict.value


def cause_of_lines(lines: Iterable[str]) -> str:
    """Return the first cause of some lines."""
    return cause_of("\n".join(lines).encode() + b"\n")


def watchdog(rank: int, seq: int = 7, op: str = "ALLREDUCE", numel: int = 1024, timeout_ms: int = 600000) -> str:
    """Return the watchdog's line of torch 2.6."""
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={timeout_ms})"
    return (
        f"[rank{rank}]:[E602 11:17:5{rank % 10}.185053341 ProcessGroupNCCL.cpp:629] [Rank {rank}] "
        f"Watchdog caught collective operation timeout: {work} ran for {timeout_ms + 91} milliseconds."
    )


def status(rank: int, seq: int, enqueued: int, completed: int) -> str:
    """Return the line in which torch 2.6 tells how far a rank got."""
    return (
        f"[rank{rank}]:[E602 11:17:59.185053341 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        f" failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {enqueued}, "
        f"last completed work: {completed}"
    )
