"""What changed since it worked: the change that is to blame comes first, and what is always different is not shown."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from preflight.check.survey import survey_capture
from preflight.fleet.changes import CHANGES, Snapshot, changes, compare
from preflight.model.facts import EnvVar, Gap, Limit, NcclConfEntry, NetifKind, NodeFacts, known
from preflight.model.gpu import Gpu, Mode, RowRemap
from preflight.model.hca import HcaPort, PortState
from preflight.show.changes import changes_page
from preflight.show.text import Detail, Style
from tests.conftest import PROJECT
from tests.reports import node_facts, report_of, trial_result

Change = Callable[[NodeFacts], NodeFacts]


@cache
def base() -> NodeFacts:
    """Return a node with eight H100 and their adapters."""
    return survey_capture((PROJECT / "tests/machines/h100x8.json").read_text()).node


def with_gpu(index: int, **changed: Any) -> Change:
    def change(node: NodeFacts) -> NodeFacts:
        gpus = known(node.gpus)
        return replace(node, gpus=tuple(replace(g, **changed) if g.nvml_index == index else g for g in gpus))

    return change


def with_pcie(index: int, **changed: Any) -> Change:
    def change(node: NodeFacts) -> NodeFacts:
        return with_gpu(index, pcie=replace(known(known(node.gpus)[index].pcie), **changed))(node)

    return change


def with_link_down(index: int, link: int) -> Change:
    def change(node: NodeFacts) -> NodeFacts:
        links = known(known(node.gpus)[index].nvlinks)
        return with_gpu(index, nvlinks=tuple(replace(e, is_active=e.link != link) for e in links))(node)

    return change


def with_port(place: int, **changed: Any) -> Change:
    def change(node: NodeFacts) -> NodeFacts:
        ports = list(known(node.hca_ports))
        ports[place] = replace(ports[place], **changed)
        return replace(node, hca_ports=tuple(ports))

    return change


def with_system(**changed: Any) -> Change:
    return lambda node: replace(node, system=replace(known(node.system), **changed))


def with_limits(**changed: Any) -> Change:
    return lambda node: replace(node, limits=replace(known(node.limits), **changed))


def with_variable(name: str, value: str) -> Change:
    return lambda node: replace(node, environment=(*known(node.environment), EnvVar(name, value)))


def with_torch(**changed: Any) -> Change:
    def change(node: NodeFacts) -> NodeFacts:
        software = known(node.software)
        return replace(node, software=replace(software, torch=replace(known(software.torch), **changed)))

    return change


def with_pids_and_heat(node: NodeFacts) -> NodeFacts:
    """Return the node as it is at any other time: other temperatures, free memory, clocks, idle links, containers."""
    gpus = [
        replace(g, temperature_c=71, utilization_percent=3, memory_free_bytes=1 << 30, memory_used_bytes=7 << 30,
                pcie=replace(known(g.pcie), gen=1))
        for g in known(node.gpus)
    ]  # fmt: skip
    veth = replace(known(node.netifs)[0], name="veth12ab", kind=NetifKind.VETH, index=99)
    changed = replace(node, gpus=tuple(gpus), netifs=(*known(node.netifs), veth))
    return with_system(memory_available_bytes=5 << 30)(changed)


def without_gpu(index: int) -> Change:
    return lambda node: replace(node, gpus=tuple(g for g in known(node.gpus) if g.nvml_index != index))


NVLS_OFF = lambda node: replace(node, nccl_conf=(NcclConfEntry("/etc/nccl.conf", "NCCL_NVLS_ENABLE", "0"),))  # noqa: E731
PLANTED: dict[str, tuple[tuple[Change, ...], str, str]] = {  # changes, and the subject and what of the one to blame
    "a lost GPU": ((without_gpu(3), with_system(kernel="6.8.0-99")), "GPU 3", "GPUs"),
    "fewer lanes": ((with_pcie(5, width=8), with_torch(location="/opt/t"), with_pids_and_heat), "GPU 5", "PCIe lanes"),
    "a link down": ((with_link_down(2, 4), with_gpu(1, power_limit_w=650.0)), "GPU 2", "NVLink 4"),
    "MIG": ((with_gpu(0, mig_mode=Mode.ENABLED), with_limits(nofile=4096)), "GPU 0", "MIG mode"),
    "memory": ((with_gpu(6, row_remap=RowRemap(1, 2, True, False)), with_pids_and_heat), "GPU 6", "remapped rows"),
    "a dead port": ((with_port(0, state=PortState.DOWN), with_variable("MY_RUN", "7")), "mlx5_0:1", "port state"),
    "a slow port": ((with_port(1, rate_gbit_s=100.0), with_pids_and_heat), "mlx5_1:1", "port rate in Gbit/s"),
    "nccl.conf": ((NVLS_OFF, with_system(kernel="6.8.0-99")), "/etc/nccl.conf-NCCL_NVLS_ENABLE",
                  "NCCL's configuration files"),
    "memlock": ((with_limits(memlock_bytes=8 << 20), with_pids_and_heat), "", "locked memory"),
    "a variable": ((with_variable("NCCL_P2P_DISABLE", "1"), with_pids_and_heat), "NCCL_P2P_DISABLE",
                   "inherited variable"),
    "another NCCL": ((with_torch(nccl="2.28.9"), with_pids_and_heat), "", "NCCL"),
    "the IOMMU": ((with_system(iommu_options=("intel_iommu=on",), kernel="6.8.0-99"),), "",
                  "IOMMU on the kernel's command line"),
}  # fmt: skip
HARMLESS = {
    "another time": (with_pids_and_heat,),
    "other folders": (with_torch(location="/opt/t"), with_variable("MY_RUN", "7"), with_pids_and_heat),
}


def after(planted: tuple[Change, ...]) -> NodeFacts:
    node = base()
    for change in planted:
        node = change(node)
    return node


@pytest.mark.parametrize("planted", PLANTED)
def test_the_change_that_is_to_blame_is_among_the_first_three(planted: str) -> None:
    made, subject, what = PLANTED[planted]
    found = changes(base(), after(made))
    assert (subject, what) in [(each.subject, each.what) for each in found[:3]], found[:5]
    assert found[0].matters


@pytest.mark.parametrize("planted", HARMLESS)
def test_what_differs_at_any_time_does_not_matter(planted: str) -> None:
    now = Snapshot((after(HARMLESS[planted]),), ())
    difference = compare(Snapshot((base(),), ()), now)
    assert difference.exit_code == 0
    assert changes_page(difference).shown(Detail.VERDICT, Style(width=80)).startswith("NOTHING THAT MATTERS")


def test_a_repair_is_not_to_blame() -> None:
    broken = after((with_pcie(5, width=8), with_link_down(2, 4), with_port(0, state=PortState.ACTIVE)))
    assert not [each for each in changes(broken, base()) if each.matters]


def test_siblings_differ_in_what_is_their_own_and_that_is_not_shown() -> None:
    sibling = replace(
        after((with_gpu(0, uuid="GPU-other"), with_pcie(5, width=8), with_port(0, lid=77))), host="node17"
    )
    found = changes(base(), sibling)
    assert [(each.subject, each.what) for each in found] == [("GPU 5", "PCIe lanes")]


def test_another_card_in_the_slot_is_said_of_one_machine() -> None:
    (found,) = changes(base(), with_gpu(0, uuid="GPU-other")(base()))
    assert (found.subject, found.what, found.now, found.matters) == ("GPU 0", "card", "GPU-other", True)


def test_a_fact_that_cant_be_read_any_more_is_said_as_such() -> None:
    (found,) = changes(base(), replace(base(), gpus=Gap("NVML gave no answer within 20 s")))
    assert found.now == "can't be read (NVML gave no answer within 20 s)" and found.matters


def test_fewer_locked_bytes_than_unlimited_is_less() -> None:
    free = with_limits(memlock_bytes=Limit.UNLIMITED)(base())
    tight = with_limits(memlock_bytes=8 << 20)(base())
    assert [each.matters for each in changes(free, tight)] == [True]
    assert [each.matters for each in changes(tight, free)] == [False]


def test_alike_changes_of_many_gpus_share_a_line() -> None:
    now = after(tuple(with_gpu(i, power_limit_w=400.0) for i in range(8)))
    page = changes_page(compare(Snapshot((base(),), ()), Snapshot((now,), ()))).shown(Detail.SCREEN, Style(width=80))
    assert page.count("power limit") == 1 and "GPU 0, GPU 1, GPU 2, GPU 3 and 4 more" in page


def test_slower_collectives_and_new_findings_are_said_even_if_no_fact_differs() -> None:
    good, bad = report_of(trials=(trial_result(),)), report_of(trials=(trial_result(median_us=1600.0),), findings=())
    difference = compare(Snapshot.of(good), Snapshot.of(bad))
    assert difference.exit_code == 1 and difference.slower
    page = changes_page(difference).shown(Detail.SCREEN, Style(width=80))
    assert "Slower" in page and "no change that preflight can read explains the loss" in " ".join(page.split())
    assert not compare(Snapshot.of(bad), Snapshot.of(good)).slower


def test_reports_without_a_node_in_common_are_not_compared() -> None:
    two = Snapshot((node_facts(host="a"), node_facts(host="b")), ())
    difference = compare(two, Snapshot((node_facts(host="c"),), ()))
    assert (difference.exit_code, difference.not_compared) == (3, ("a", "b", "c"))
    assert changes_page(difference).shown(Detail.VERDICT, Style(width=80)).startswith("NOT COMPARED")


def paths(kind: Any, path: str) -> Iterator[str]:
    """Yield every place in the facts, with * for a name or a number."""
    yield path
    if is_dataclass(kind) and kind is not Gap:
        hints = typing.get_type_hints(kind)
        for field in fields(kind):
            yield from paths(hints[field.name], f"{path}.{field.name}".lstrip("."))
    elif typing.get_origin(kind) in (typing.Union, types.UnionType):
        for each in typing.get_args(kind):
            yield from paths(each, path)
    elif typing.get_origin(kind) is tuple and is_dataclass(typing.get_args(kind)[0]):
        yield from paths(typing.get_args(kind)[0], f"{path}.X")


def test_every_row_is_about_a_fact_that_there_is() -> None:
    there = set(paths(NodeFacts, "")) | {"hca_ports.X.counters.a_error", "hca_ports.X.counters.link_downed"}
    assert not [row.path for row in CHANGES if not any(fnmatchcase(path, row.path) for path in there)]
    assert isinstance(known(base().gpus)[0], Gpu) and isinstance(known(base().hca_ports)[0], HcaPort)
