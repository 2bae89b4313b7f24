"""Every recorded /sys and /proc tree of the corpus: what the probes say against what lies in the tree's folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preflight.facts.run import probe_node
from preflight.model.codec import GAPS, encode
from preflight.model.facts import Gap, NodeFacts
from preflight.system.machine import Tree
from tests.corpus import CORPUS, corpus_files, need_corpus, unpack

pytestmark = pytest.mark.heavy(4)

TREES = [*corpus_files("sysfs", "*.tar.*"), *corpus_files("sysfs", "*.ttar")]
INFINIBAND = "sys-class-infiniband"


@pytest.fixture(params=TREES or [CORPUS / "sysfs"], ids=lambda path: path.name)
def roots(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    archive = need_corpus(request.param)
    if archive.suffix == ".ttar":
        return [_unpack_ttar(archive, tmp_path)]
    if INFINIBAND in archive.name:
        return [_unpack_class(archive, tmp_path)]
    return unpack(archive, tmp_path)


def _unpack_ttar(archive: Path, where: Path) -> Path:
    """Unpack the text archive of prometheus/procfs: files by their number of lines, links by SymlinkTo."""
    lines = iter(archive.read_text(encoding="utf-8", errors="replace").split("\n"))
    path = where
    for line in lines:
        key, _, value = line.partition(": ")
        if key == "Path":
            path = where / value
        elif key == "Directory":
            (where / value).mkdir(parents=True, exist_ok=True)
        elif key == "SymlinkTo":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(value)
        elif key == "Lines":
            content = "\n".join(next(lines) for _ in range(int(value)))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return where / "fixtures"


def _unpack_class(archive: Path, where: Path) -> Path:
    unpack(archive, where)
    (found,) = where.iterdir()
    (where / "sys" / "class").mkdir(parents=True)
    found.rename(where / "sys" / "class" / "infiniband")
    return where


def test_the_facts_are_what_lies_in_the_tree(roots: list[Path]) -> None:
    assert roots
    for root in roots:
        node, _ = probe_node(Tree(root))
        _assert_numa_and_interfaces(root, node)
        _assert_gpus(root, node)
        _assert_adapters(root, node)
        _assert_gaps_are_true(root, node)


def _assert_numa_and_interfaces(root: Path, node: NodeFacts) -> None:
    ids = sorted(int(path.name[4:]) for path in root.glob("sys/devices/system/node/node[0-9]*"))
    if (root / "sys/devices/system").is_dir():
        assert [numa.id for numa in node.numa_nodes] == ids if not isinstance(node.numa_nodes, Gap) else ids == []
    names = {path.parent.name for path in root.glob("sys/class/net/*/ifindex")}
    found = () if isinstance(node.netifs, Gap) else node.netifs
    assert {netif.name for netif in found} == names


def _assert_gpus(root: Path, node: NodeFacts) -> None:
    gpus = [path for path in root.glob("sys/bus/pci/devices/*/vendor") if path.read_text().strip() == "0x10de"]
    displays = sorted(path.parent.name for path in gpus if path.with_name("class").read_text().startswith("0x03"))
    devices = () if isinstance(node.nvidia_pci, Gap) else node.nvidia_pci
    assert [device.bdf for device in devices] == displays
    tree = () if isinstance(node.pci, Gap) else node.pci
    assert sorted(device.bdf for device in tree if device.kind.value == "gpu") == displays
    for device in tree:
        assert {*device.parents} <= {each.bdf for each in tree}


def _assert_adapters(root: Path, node: NodeFacts) -> None:
    there = sorted(path.name for path in root.glob("sys/class/infiniband/*"))
    nics = () if isinstance(node.nics, Gap) else node.nics
    assert sorted(nic.name for nic in nics) == there
    folders = [path for path in root.glob("sys/class/infiniband/*/ports/*") if path.name.isdecimal()]
    ports = () if isinstance(node.hca_ports, Gap) else node.hca_ports
    assert sorted((port.hca, port.port) for port in ports) == sorted((p.parts[-3], int(p.name)) for p in folders)
    for port in ports:
        folder = root / "sys/class/infiniband" / port.hca / "ports" / str(port.port)
        assert not isinstance(port.state, Gap)
        assert (folder / "state").read_text().split()[1] == port.state.value
        assert not isinstance(port.rate_gbit_s, Gap)
        assert (folder / "rate").read_text().split()[0] == f"{port.rate_gbit_s:g}"


def _assert_gaps_are_true(root: Path, node: NodeFacts) -> None:
    """A gap that says "not there" names a path that is not; none is a probe's own defect."""
    for gap in encode(node)[GAPS]:
        assert "failed: " not in gap["reason"], gap
        assert "stuck" not in gap["reason"], gap
        for path in re.findall(r"(?:^|; )(/\S+): not there", gap["reason"]):
            assert not (root / path.lstrip("/")).exists(), gap
