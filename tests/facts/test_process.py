"""Probes of what is not in files: limits, names, shared memory, software, environment and NCCL's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.facts.network import probe_name_resolution
from preflight.facts.nvml import probe_nvml
from preflight.facts.process import parse_nccl_conf, probe_environment, probe_limits, probe_nccl_conf, probe_software
from preflight.facts.system import probe_shm
from preflight.model.facts import EnvVar, Gap, Limit, NameResolution, NcclConfEntry, TorchFacts
from preflight.model.gpu import UnreadableGpu
from preflight.system.machine import Json, Tree
from tests.sysroot import answering, build

HOME = {"home": "/root", "working_directory": "/job"}
VERSION_FILE = "from typing import Optional\n__version__ = '2.9.1+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\n"


def _ask(tmp_path: Path, **answers: Json) -> Tree:
    return answering(Tree(tmp_path), answers)


def test_limits_keep_apart_what_is_unlimited(tmp_path: Path) -> None:
    machine = _ask(tmp_path, rlimits={"memlock": "unlimited", "nofile": 1024, "stack": 8 << 20, "nproc": "unlimited"})
    limits = probe_limits(machine)
    assert (limits.memlock_bytes, limits.nofile, limits.nproc) == (Limit.UNLIMITED, 1024, Limit.UNLIMITED)


def test_the_resolvers_order_is_kept(tmp_path: Path) -> None:
    machine = _ask(tmp_path, host_addresses={"name": "n1", "addresses": ["127.0.1.1", "10.0.0.5"]})
    assert probe_name_resolution(machine) == NameResolution("n1", ("127.0.1.1", "10.0.0.5"))


def test_only_stale_segments_count_as_left_behind(tmp_path: Path) -> None:
    segments = [
        {"name": "nccl-a", "size_bytes": 4096, "stale": True},
        {"name": "nccl-b", "size_bytes": 8192, "stale": False},
    ]
    shm = probe_shm(_ask(tmp_path, shm_statvfs={"size_bytes": 64 << 20, "free_bytes": 1}, shm_mapped=segments))
    assert (shm.stale_nccl_files, shm.stale_nccl_bytes) == (("nccl-a",), 4096)


def test_variables_come_by_name(tmp_path: Path) -> None:
    machine = _ask(tmp_path, environment={"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": ""})
    assert probe_environment(machine) == (EnvVar("CUDA_VISIBLE_DEVICES", ""), EnvVar("NCCL_DEBUG", "INFO"))


def _software(tmp_path: Path, version_file: str, wheels: dict[str, str]) -> TorchFacts | Gap:
    torch = {"location": "/site/torch", "version_file": version_file, "nccl_wheels": wheels}
    return probe_software(_ask(tmp_path, software={"python": "3.11.7", "preflight": "1", "torch": torch})).torch


def test_torch_is_known_by_its_version_file_and_the_nccl_wheel_of_its_cuda(tmp_path: Path) -> None:
    wheels = {"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.30.7"}
    expected = TorchFacts(version="2.9.1+cu128", cuda="12.8", nccl="2.27.5", location="/site/torch")
    assert _software(tmp_path, VERSION_FILE, wheels) == expected


def test_a_torch_for_the_cpu_has_neither_cuda_nor_nccl(tmp_path: Path) -> None:
    torch = _software(
        tmp_path, "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None", {"nvidia-nccl-cu12": "2.27.5"}
    )
    assert isinstance(torch, TorchFacts)
    assert torch.cuda == torch.nccl == Gap("this torch was built without CUDA")


def test_a_torch_with_its_own_nccl_does_not_take_the_version_of_another_wheel(tmp_path: Path) -> None:
    torch = _software(tmp_path, VERSION_FILE, {"nvidia-nccl-cu13": "2.30.7"})
    assert isinstance(torch, TorchFacts)
    assert isinstance(torch.nccl, Gap)


def test_no_torch_is_a_gap_beside_the_python_version(tmp_path: Path) -> None:
    answer = {"python": "3.11.7", "preflight": "1", "torch": {"unreadable": "torch is not installed"}}
    assert probe_software(_ask(tmp_path, software=answer)).torch == Gap("torch is not installed")


def _conf(tmp_path: Path, files: dict[str, str], **variables: str) -> list[tuple[str, str, str]]:
    machine = build(tmp_path, files, {"environment": variables, "home": HOME})
    return [(entry.file, entry.name, entry.value) for entry in probe_nccl_conf(machine, machine)]


def test_the_users_file_comes_before_the_systems_and_its_values_win(tmp_path: Path) -> None:
    files = {"root/.nccl.conf": "A=1\nB=2", "etc/nccl.conf": "B=3\nC=4"}
    assert _conf(tmp_path, files) == [
        ("/root/.nccl.conf", "A", "1"),
        ("/root/.nccl.conf", "B", "2"),
        ("/etc/nccl.conf", "C", "4"),
    ]


def test_a_named_file_replaces_the_users_and_not_the_systems(tmp_path: Path) -> None:
    files = {"root/.nccl.conf": "A=1", "job/my.conf": "B=2", "etc/nccl.conf": "C=3"}
    found = _conf(tmp_path, files, NCCL_CONF_FILE="my.conf")
    assert found == [("/job/my.conf", "B", "2"), ("/etc/nccl.conf", "C", "3")]


def test_an_empty_name_of_a_file_is_no_name(tmp_path: Path) -> None:
    assert _conf(tmp_path, {"root/.nccl.conf": "A=1"}, NCCL_CONF_FILE="") == [("/root/.nccl.conf", "A", "1")]


def test_no_file_is_no_setting(tmp_path: Path) -> None:
    assert _conf(tmp_path, {}) == []


def test_blanks_and_quotes_are_part_of_names_and_values() -> None:
    text = "#NCCL_A=1\n #B=2\nNCCL_DEBUG = INFO\nexport NCCL_C='x'\nno setting\n=5\nNCCL_IFNAME==eth0"
    assert [(entry.name, entry.value) for entry in parse_nccl_conf("f", text)] == [
        (" #B", "2"),
        ("NCCL_DEBUG ", " INFO"),
        ("export NCCL_C", "'x'"),
        ("NCCL_IFNAME", "=eth0"),
    ]


def test_a_value_is_cut_where_nccl_cuts_it() -> None:
    assert parse_nccl_conf("f", "A=" + "x" * 2000) == (NcclConfEntry("f", "A", "x" * 1023),)


def _gpu(index: int, **values: Json) -> Json:
    base = {"nvml_index": index, "uuid": f"GPU-{index}", "bdf": f"0000:0{index}:00.0", "name": "H100"}
    return base | {"memory": {"total_bytes": 10, "free_bytes": 9}} | values


def test_a_gpu_that_cannot_be_identified_is_kept_apart_with_its_reason(tmp_path: Path) -> None:
    gpus = [_gpu(0, name={"unreadable": "not supported"}), {"nvml_index": 1, "unreadable": "GPU is lost"}]
    answer = {"driver_version": "580.1", "cuda_version": {"unreadable": "too old"}, "gpus": gpus}
    facts = probe_nvml(_ask(tmp_path, nvml=answer))
    assert [gpu.uuid for gpu in facts.gpus] == ["GPU-0"]
    assert facts.gpus[0].name == Gap("not supported")
    assert facts.gpus[0].memory_free_bytes == 9
    assert facts.gpus[0].minor == Gap("the version that made the capture did not read this value")
    assert facts.driver.cuda == Gap("too old")
    assert facts.driver.unreadable_gpus == (UnreadableGpu(1, "GPU is lost"),)


def test_nvml_that_does_not_start_is_unreadable_for_its_reason(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFact, match="no driver is installed"):
        probe_nvml(_ask(tmp_path, nvml={"error": "no driver is installed"}))
