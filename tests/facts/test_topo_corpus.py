"""Every pasted topology of the corpus against a second reading of its text that shares nothing with the parser.

The second reading takes the names of the columns from the rows, not from the header, and all connection words of a
line wherever they stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from preflight.facts.topo_facts import topology_facts
from preflight.model.facts import Gap, NodeFacts, known
from tests.corpus import CORPUS, corpus_files, need_corpus

pytestmark = pytest.mark.heavy(4)

FILES = corpus_files("topo", "*.txt")
CONNECTION = re.compile(r"NV\d\d?|NODE|SYS|PIX|PXB|PHB|X")


@dataclass(frozen=True, slots=True)
class Line:
    """What stands in a row: its connections in order, and the words behind the last one."""

    cells: tuple[str, ...]
    words: tuple[str, ...]


def _second_reading(text: str) -> dict[str, Line]:
    lines = iter(text.splitlines())
    rows: dict[str, Line] = {}
    for line in lines:
        name, _, rest = line.strip().partition("\t") if "\t" in line else line.strip().partition(" ")
        if "Affin" in line or not re.fullmatch(r"GPU\d+|NIC\d+|\w+_\w*\d+", name) or not CONNECTION.search(rest):
            continue
        found = list(CONNECTION.finditer(rest))
        rows.setdefault(name, Line(tuple(m[0] for m in found), tuple(rest[found[-1].end() :].split())))
    return rows


def _names(text: str) -> dict[str, str]:
    return dict(re.findall(r"^ *(NIC\d+): *(\S+)", text, re.MULTILINE))


def _pairs(facts: NodeFacts) -> Iterator[tuple[str, str, str]]:
    for path in known(facts.gpu_paths):
        yield f"GPU{path.a}", f"GPU{path.b}", known(path.level)
    for nic_path in known(facts.nic_paths):
        if not isinstance(nic_path.level, Gap):
            yield f"GPU{nic_path.gpu}", nic_path.nic, nic_path.level


@pytest.fixture(params=FILES or [CORPUS / "topo"], ids=lambda path: path.stem)
def text_file(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return need_corpus(path)


def test_the_connections_are_those_of_the_second_reading(text_file: Path) -> None:
    text = text_file.read_text(encoding="utf-8", errors="replace")
    rows, names, facts = _second_reading(text), _names(text), topology_facts(text)
    columns = list(rows) + sorted(set(names) - set(rows), key=lambda name: int(name[3:]))
    place = {names.get(name, name): i for i, name in enumerate(columns)}
    pairs = list(_pairs(facts))
    gpus = [name for name in columns if name.startswith("GPU")]
    assert {f"GPU{gpu.nvml_index}" for gpu in known(facts.gpus)} == set(gpus)
    for a, b, level in pairs:
        assert rows[a].cells[place[b] if b in place else _number(b, len(gpus))] == level, (a, b)
    whole = [name for name in gpus if rows[name].cells.count("X") == 1]
    shown = {(a, b) for a, b, _ in pairs} | {(b, a) for a, b, _ in pairs}
    for name in whole:
        assert len([pair for pair in shown if pair[0] == name]) == len(rows[name].cells) - 1


def _number(name: str, gpus: int) -> int:
    """Return the column of an adapter that the text names only in its header: they are numbered in order."""
    return gpus + int(name.removeprefix("NIC"))


def test_the_affinities_are_those_of_the_second_reading(text_file: Path) -> None:
    text = text_file.read_text(encoding="utf-8", errors="replace")
    rows, facts = _second_reading(text), topology_facts(text)
    for gpu in known(facts.gpus):
        words = rows[f"GPU{gpu.nvml_index}"].words
        first = words[0] if len(words) > 2 and words[0][0].isdigit() else ""
        cpus = first or next((word for word in words if re.search(r"\d[-,]\d", word)), "")
        if cpus == "" or isinstance(gpu.cpu_affinity, Gap):
            assert len(words) <= 1 or words[0] == "N/A"
            continue
        mine = _cpus(cpus) if len(words) > 2 or "GPU NUMA" not in text else None
        if mine is not None:
            assert set(gpu.cpu_affinity) == mine
            node = words[words.index(cpus) + 1] if len(words) > 1 else ""
            assert str(gpu.numa_node) == node if node.isdigit() else isinstance(gpu.numa_node, Gap)
        else:  # two columns run together: what is read must be what stands there without the blanks
            assert "".join(words).startswith(cpus[: len(cpus) - 1])
            assert set(gpu.cpu_affinity) <= _cpus(cpus)


def _cpus(text: str) -> set[int]:
    spans = [part.split("-") for part in text.strip(",").split(",")]
    return {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}


def test_the_facts_agree_with_the_description_beside_the_text(text_file: Path) -> None:
    facts = topology_facts(text_file.read_text(encoding="utf-8", errors="replace"))
    shown_by_tool = json.loads(text_file.with_suffix(".json").read_text())
    if shown_by_tool["n_gpus"] is not None:
        assert len(known(facts.gpus)) == shown_by_tool["n_gpus"]
    nics = [nic.name for nic in known(facts.nics)]
    assert [nic for nic in nics if nic in shown_by_tool["nics"]] == shown_by_tool["nics"]
    assert len(nics) - len(shown_by_tool["nics"]) <= 3  # it leaves out the names that ran into each other
    levels = {level for _, _, level in _pairs(facts)}
    assert levels <= set(shown_by_tool["links"] or levels)
    nodes = {
        node for gpu in known(facts.gpus) if not isinstance(gpu.memory_affinity, Gap) for node in gpu.memory_affinity
    }
    for node in shown_by_tool["numa_nodes"] or ():
        named = re.fullmatch(r"(\d+)(?:-(\d+))?(?:N/A)?", node)
        assert named is None or {int(named[1]), int(named[2] or named[1])} <= nodes


def test_a_line_that_cannot_be_read_is_named(text_file: Path) -> None:
    text = text_file.read_text(encoding="utf-8", errors="replace")
    facts = topology_facts(text)
    for unread in facts.unread_lines:
        assert isinstance(unread.content, Gap)
        assert unread.content.reason.startswith(f"line {unread.line}: ")
        assert 1 <= unread.line <= len(text.splitlines())
    levels = [path.level for path in known(facts.gpu_paths)] + [path.level for path in known(facts.nic_paths)]
    assert facts.unread_lines or not any(isinstance(level, Gap) for level in levels)


def _run_together(text: str, column: int) -> str:
    """Return the text as after a break at this column and the loss of the blanks around it: pasting does that."""
    lines = text.split("\n")
    end = next((i for i, line in enumerate(lines) if "Legend" in line), len(lines))
    for i, line in enumerate(line.expandtabs(8) for line in lines[:end]):
        left, right = line[:column], line[column:]
        lines[i] = left.rstrip() + right.lstrip() if left.endswith(" ") or right.startswith(" ") else line
    return "\n".join(lines)


def _facts_by_place(facts: NodeFacts) -> dict[tuple[object, ...], object]:
    shown_by_tool: dict[tuple[object, ...], object] = {}
    shown_by_tool.update((("gpu", path.a, path.b), path.level) for path in known(facts.gpu_paths))
    shown_by_tool.update((("nic", path.gpu, path.nic), path.level) for path in known(facts.nic_paths))
    shown_by_tool.update((("cpus", gpu.nvml_index), gpu.cpu_affinity) for gpu in known(facts.gpus))
    shown_by_tool.update((("node", gpu.nvml_index), gpu.numa_node) for gpu in known(facts.gpus))
    return shown_by_tool


def test_columns_that_run_together_anywhere_make_gaps_and_never_other_facts(text_file: Path) -> None:
    text = text_file.read_text(encoding="utf-8", errors="replace")
    whole = topology_facts(text)
    if whole.unread_lines:
        pytest.skip("the text as pasted is damaged already")
    width = max(len(line.expandtabs(8)) for line in text.split("\n"))
    for column in range(12, width, max(1, width // 12)):
        shown_by_tool = _facts_by_place(topology_facts(_run_together(text, column)))
        for what, value in _facts_by_place(whole).items():
            assert isinstance(shown_by_tool[what], Gap) or shown_by_tool[what] == value, (column, what)
