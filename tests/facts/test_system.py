from __future__ import annotations

from pathlib import Path

import pytest

from preflight.facts.system import parse_hypervisor, parse_iommu_options, probe_system
from preflight.model.facts import ContainerKind, Gap, Limit, Overcommit, SystemFacts
from tests.sysroot import build

V2 = "sys/fs/cgroup"


def _probe(tmp_path: Path, files: dict[str, str]) -> SystemFacts:
    return probe_system(build(tmp_path, files))


def test_memory_is_given_in_bytes(tmp_path: Path) -> None:
    facts = _probe(tmp_path, {"proc/meminfo": "MemTotal:       1000 kB\nMemAvailable:    400 kB"})
    assert (facts.memory_total_bytes, facts.memory_available_bytes) == (1024000, 409600)


def test_the_online_cpus_are_counted_not_the_present_ones(tmp_path: Path) -> None:
    assert _probe(tmp_path, {"sys/devices/system/cpu/online": "0-5,8"}).cpu_count == 7


def test_cpuinfo_is_counted_where_sys_does_not_tell(tmp_path: Path) -> None:
    assert _probe(tmp_path, {"proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1"}).cpu_count == 2


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        ("model name\t: AMD  EPYC 9654", "AMD EPYC 9654"),
        ("cpu\t\t: POWER9, altivec supported", "POWER9, altivec supported"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd4f", "Arm implementer 0x41 part 0xd4f"),
    ],
)
def test_the_cpu_is_named_on_every_architecture(tmp_path: Path, cpuinfo: str, model: str) -> None:
    assert _probe(tmp_path, {"proc/cpuinfo": cpuinfo}).cpu_model == model


def test_the_tightest_level_of_a_nested_version_2_cgroup_counts(tmp_path: Path) -> None:
    facts = _probe(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod1/c1",
            f"{V2}/kubepods/cpu.max": "800000 100000",
            f"{V2}/kubepods/pod1/cpu.max": "150000 100000",
            f"{V2}/kubepods/pod1/c1/cpu.max": "max 100000",
            f"{V2}/kubepods/pod1/memory.max": "max",
            f"{V2}/kubepods/memory.max": "4096",
        },
    )
    assert facts.cgroup_cpu_limit == 1.5
    assert facts.cgroup_memory_limit_bytes == 4096


def test_version_1_limits_are_found_where_the_path_is_the_hosts(tmp_path: Path) -> None:
    facts = _probe(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824",
        },
    )
    assert facts.cgroup_cpu_limit == 0.5
    assert facts.cgroup_memory_limit_bytes == 1 << 30


def test_version_1_without_limits_is_unlimited(tmp_path: Path) -> None:
    facts = _probe(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu:/\n5:memory:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert facts.cgroup_cpu_limit is Limit.UNLIMITED
    assert facts.cgroup_memory_limit_bytes is Limit.UNLIMITED


@pytest.mark.parametrize(
    ("files", "product", "bios"),
    [
        (
            {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge  XE9680\n", "bios_vendor": "Dell Inc.",
             "bios_version": "2.1.5", "bios_date": "03/14/2024"},
            "Dell Inc. PowerEdge XE9680", "Dell Inc. 2.1.5 03/14/2024",
        ),
        ({"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge", "bios_version": "1.0"},
         "Amazon EC2 p5.48xlarge", "1.0"),
        ({"sys_vendor": "ASUS", "product_name": "System Product Name", "bios_vendor": "Default string"}, "ASUS", None),
        ({"product_name": "To Be Filled By O.E.M."}, None, None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_the_server_and_its_firmware_are_named_without_what_was_left_to_be_filled(
    tmp_path: Path, files: dict[str, str], product: str | None, bios: str | None
) -> None:
    facts = _probe(tmp_path, {f"sys/class/dmi/id/{name}": text for name, text in files.items()})
    told = [None if isinstance(fact, Gap) else fact for fact in (facts.product, facts.bios)]
    assert told == [product, bios]


def test_no_cgroup_file_system_is_a_gap_and_not_unlimited(tmp_path: Path) -> None:
    facts = _probe(tmp_path, {"proc/self/cgroup": "0::/"})
    assert isinstance(facts.cgroup_cpu_limit, Gap)
    assert isinstance(facts.cgroup_memory_limit_bytes, Gap)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"proc/1/cgroup": "0::/init.scope"}, ContainerKind.NONE),
        ({".dockerenv": ""}, ContainerKind.DOCKER),
        ({".dockerenv": "", "proc/1/cgroup": "1:cpu:/kubepods/pod1"}, ContainerKind.KUBERNETES),
        ({"var/run/secrets/kubernetes.io/": ""}, ContainerKind.KUBERNETES),
        ({"run/.containerenv": ""}, ContainerKind.PODMAN),
        ({".singularity.d/env/x": ""}, ContainerKind.APPTAINER),
        ({"run/systemd/container": "lxc"}, ContainerKind.LXC),
        ({"run/systemd/container": "systemd-nspawn"}, ContainerKind.OTHER),
        ({"proc/1/cgroup": "1:cpu:/docker/0123"}, ContainerKind.DOCKER),
    ],
)
def test_the_container_is_known_by_its_marks(tmp_path: Path, files: dict[str, str], kind: ContainerKind) -> None:
    assert _probe(tmp_path, files).container is kind


@pytest.mark.parametrize(
    ("dmi", "flags", "expected"),
    [
        ("Dell Inc. PowerEdge XE9680", "flags: fpu sse", "none"),
        ("QEMU Standard PC", "flags: fpu", "kvm"),
        ("Microsoft Corporation Virtual Machine", "flags: hypervisor", "hyper-v"),
        ("Amazon EC2 p5.48xlarge", "flags: fpu hypervisor", "amazon ec2"),
        ("Amazon EC2 c5.metal", "flags: fpu", "none"),
        ("Amazon EC2 c7g.metal", "", "none"),
        ("Amazon EC2 c7g.large", "", "amazon ec2"),
        ("NVIDIA DGX Spark", "", "none"),
        ("", "flags: hypervisor", "unidentified"),
    ],
)
def test_a_virtual_machine_is_told_from_bare_metal(dmi: str, flags: str, expected: str) -> None:
    assert parse_hypervisor(dmi, flags) == expected


def test_only_words_about_the_iommu_are_kept_of_the_command_line() -> None:
    cmdline = "root=/dev/sda intel_iommu=on iommu=pt pci=noacs pcie_acs_override=downstream iommu.passthrough=1 quiet"
    assert parse_iommu_options(cmdline) == (
        "intel_iommu=on",
        "iommu=pt",
        "pci=noacs",
        "pcie_acs_override=downstream",
        "iommu.passthrough=1",
    )


def test_on_an_empty_machine_every_fact_is_a_gap_with_a_reason(tmp_path: Path) -> None:
    facts = _probe(tmp_path, {})
    values = [getattr(facts, name) for name in SystemFacts.__dataclass_fields__]
    assert all(isinstance(value, Gap) and value.reason for value in values)


def test_the_pids_limit_and_what_may_still_be_committed_are_read(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/pids.max": "max\n",
        "sys/fs/cgroup/job/pids.max": "512\n",
        "proc/sys/vm/overcommit_memory": "2\n",
        "proc/meminfo": "CommitLimit:     1000 kB\nCommitted_AS:     400 kB\n",
    }
    facts = _probe(tmp_path, files)
    assert (facts.cgroup_pids_limit, facts.overcommit, facts.commit_left_bytes) == (512, Overcommit.NEVER, 600 << 10)
