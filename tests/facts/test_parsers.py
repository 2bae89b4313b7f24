"""Laws of all parsers: whatever the text, a value or one of our errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preflight.errors import MalformedInput, UnreadableFact
from preflight.facts import cgroup, network, nvidia_driver, pci_bus, process, reading, system
from preflight.model.facts import Gap

PARSERS: dict[str, Callable[[str], object]] = {
    "whole": lambda text: reading.parse_whole(text, "x"),
    "numa_node": reading.parse_numa_node,
    "cpu_list": reading.parse_cpu_list,
    "cpu_mask": reading.parse_cpu_mask,
    "meminfo": lambda text: reading.parse_meminfo(text, "MemTotal"),
    "cpu_model": system.parse_cpu_model,
    "cpu_count": system.parse_cpu_count,
    "container_cgroup": system.parse_container_cgroup,
    "systemd_container": system.parse_systemd_container,
    "hypervisor_dmi": lambda text: system.parse_hypervisor(text, ""),
    "hypervisor_cpuinfo": lambda text: system.parse_hypervisor("", text),
    "iommu_options": system.parse_iommu_options,
    "cgroup_path": lambda text: cgroup.parse_cgroup_path(text, "cpu"),
    "cgroup_levels": cgroup.levels,
    "cpu_max": cgroup.parse_cpu_max,
    "memory_max": lambda text: cgroup.parse_max(text, "memory.max"),
    "pids_max": lambda text: cgroup.parse_max(text, "pids.max"),
    "overcommit": system.parse_overcommit,
    "commit_left": system.parse_commit_left,
    "memory_limit_v1": cgroup.parse_memory_limit_v1,
    "pci_class": pci_bus.is_display,
    "pci_id": pci_bus.parse_id,
    "module_version": nvidia_driver.parse_module_version,
    "distances": system.parse_distances,
    "devtype": network.parse_devtype,
    "flags": network.parse_flags,
    "speed": network.parse_speed,
    "torch_version": lambda text: process.parse_version(text, "__version__"),
    "nccl_wheel": lambda text: process.choose_nccl(text, {}),
    "nccl_conf": lambda text: process.parse_nccl_conf("/etc/nccl.conf", text),
}

# Digits of other scripts are numbers to Python and not to the kernel.
TEXT = st.text(max_size=60) | st.text(alphabet="0123456789-,:=/x. \nmax٣²kB#'", max_size=60)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=60)
@given(text=TEXT)
@example(text="")
@example(text="9" * 6000)
@example(text="0-99999999999999999999")
@example(text="5 0")
@example(text="٣")
def test_any_text_gives_a_value_or_one_of_our_errors(name: str, text: str) -> None:
    try:
        assert PARSERS[name](text) is not None
    except (UnreadableFact, MalformedInput) as error:
        assert str(error)


@given(st.sets(st.integers(0, 4096), max_size=40))
def test_a_cpu_list_names_exactly_its_cpus(cpus: set[int]) -> None:
    assert reading.parse_cpu_list(",".join(map(str, sorted(cpus)))) == tuple(sorted(cpus))


@given(st.sets(st.integers(0, 500), min_size=1, max_size=40))
def test_a_cpu_mask_names_exactly_its_cpus(cpus: set[int]) -> None:
    digits = f"{sum(1 << cpu for cpu in cpus):0160x}"
    words = ",".join(digits[i : i + 8] for i in range(0, 160, 8))
    assert reading.parse_cpu_mask(words) == tuple(sorted(cpus))


def test_a_numa_node_of_minus_one_is_unreadable_with_its_meaning() -> None:
    gap = reading.gap_or(lambda: reading.parse_numa_node("-1"))
    assert isinstance(gap, Gap)
    assert gap.reason.startswith("the kernel says -1")


def test_what_is_no_number_is_quoted_in_part_and_an_empty_file_is_called_so() -> None:
    for text, said in (("", "x: the file is empty"), ("a" * 60, f"x: '{'a' * 40}' is not a whole number")):
        with pytest.raises(UnreadableFact) as raised:
            reading.parse_whole(text, "x")
        assert str(raised.value) == said
