"""Known bugs of what really runs: GB200 with NCCL 2.28.9, two NCCLs, LD_PRELOAD, VLLM_NCCL_SO_PATH, a plugin's own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.model.codec import decode_value, encode_value
from preflight.model.stuck import StuckReport, StuckVerdict
from preflight.model.stuck_evidence import Frame, GpuState, JobSoftware, LoadedLibrary, NodeEvidence
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style
from preflight.stuck.collect.jobs import ListedProcess
from preflight.stuck.collect.libraries import chosen_by, read_software
from preflight.stuck.judge.answer import answer
from preflight.system.kernel_queries import live_machine
from preflight.system.known_bugs import load_known_bugs
from tests.stuck.evidence import ALL_REDUCE, SAVE, four, node, process, rank, thread

WHEEL = "/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
NATIVE = Frame("ncclLocalOpAppend", "proxy.cc", 480)
MAPS = """
import mmap, sys
kept = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ))
print("ready", flush=True)
sys.stdin.read()
"""


def software(*nccl: str, architecture: str = "aarch64", gpus: tuple[str, ...] = ("NVIDIA GB200",)) -> JobSoftware:
    libraries = tuple(LoadedLibrary("NCCL", version, f"{WHEEL}.{n}") for n, version in enumerate(nccl))
    return JobSoftware(libraries, architecture, "6.14.0", "580.95.05", gpus)


def idle(*gpus: int) -> tuple[GpuState, ...]:
    return tuple(GpuState(number, f"GPU-{number}", 100.0, 200.0, 1200.0, 1980.0) for number in gpus)


def tray(of: JobSoftware, native: bool = False) -> NodeEvidence:
    """Return a tray of four GPUs on which all ranks wait in one all_reduce; with `native` one shows NCCL's frame."""
    odd = process(102, (NATIVE, *ALL_REDUCE)) if native else process(102)
    return replace(four(rank(2, odd), gpus=idle(0, 1, 2, 3)), software=of)


def judged(of: JobSoftware, **how: bool) -> StuckReport:
    return answer([tray(of, **how)], load_known_bugs())


def first_screen(report: StuckReport) -> str:
    return stuck_page(report).shown(Detail.SCREEN, Style(width=80))


def test_a_gb200_tray_with_2_28_9_whose_ranks_wait_alike_may_have_the_bug() -> None:
    report = judged(software("2.28.9"))
    assert report.verdict is StuckVerdict.STUCK
    assert report.known_bugs[0].bug == "nccl-lost-proxy-slots-on-arm"
    assert "This may be a known bug of NCCL 2.28.9: one rank spins in NCCL" in report.summary
    page = first_screen(report)
    assert "Known bug: use NCCL 2.29.3 or newer" in page
    assert "its makers say so" in " ".join(page.split())
    assert len(page.splitlines()) <= 24
    assert max(map(len, page.splitlines())) <= 80


def test_its_frame_on_a_stack_makes_it_likely_and_comes_first() -> None:
    report = judged(software("2.28.9"), native=True)
    assert "This is likely a known bug of NCCL 2.28.9" in report.summary
    assert report.known_bugs[0].is_shown
    assert "Next   end the job; use NCCL 2.29.3 or newer" in first_screen(report)


@pytest.mark.parametrize(
    "of",
    [
        software("2.29.3"),
        software("2.30.7"),
        software("2.28.9", architecture="x86_64", gpus=("NVIDIA H100 80GB HBM3",)),
        software(""),
    ],
    ids=("fixed", "newer", "another architecture", "a version that is not known"),
)
def test_without_the_bug_nothing_is_said(of: JobSoftware) -> None:
    report = judged(of)
    assert report.known_bugs == ()
    assert "known bug" not in report.summary


def test_its_frame_counts_although_the_version_is_not_known_and_that_is_said() -> None:
    report = judged(software(""), native=True)
    assert "the version of NCCL is not known" in report.summary
    assert judged(software("2.29.3"), native=True).known_bugs == ()


def test_a_rank_that_saves_is_no_bug_of_nccl() -> None:
    saving = four(rank(2, process(102, SAVE, thread(102, "D", "nfs_wait_bit", 0.0))))
    report = answer([replace(saving, software=software("2.28.9"))], load_known_bugs())
    assert report.known_bugs == ()


def test_two_nccls_are_named_with_their_paths_and_either_may_have_the_bug() -> None:
    report = judged(software("2.30.7", "2.28.9"))
    assert report.known_bugs[0].version == "NCCL 2.28.9"
    assert any("several versions of NCCL are loaded: 2.30.7 (" in hint for hint in report.hints)


def test_evidence_of_an_older_preflight_has_no_software() -> None:
    document = encode_value(node(rank(0)))
    document.pop("software", None)
    assert answer([decode_value(NodeEvidence, document)], load_known_bugs()).known_bugs == ()


def test_what_a_process_has_mapped_is_read_with_its_version_and_what_chose_it(tmp_path: Path) -> None:
    files = {
        "pre/libnccl.so.2.28.9": b"\0" * 5000 + b"NCCL version 2.28.9+cuda13.0\0",
        "wheel/libnccl.so.2": b"\0" * 900 + b"NCCL version 2.30.7+cuda13.0\0",
        "efa/libnccl-net-ofi.so": b"\0Initializing aws-ofi-nccl 1.19.1\0",
        "torch/lib/libtorch_cpu.so": b"\0",
        "torch/version.py": b"__version__ = '2.11.0+cu130'\n",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    mapped = [str(tmp_path / name) for name in files if not name.endswith(".py")]
    with subprocess.Popen([sys.executable, "-c", MAPS, *mapped], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        places = {"LD_PRELOAD": f"/usr/lib/libjemalloc.so {tmp_path}/pre/libnccl.so"}
        listed = ListedProcess(child.pid, 1, os.getuid(), "python", "S", 1, (), {}, places, frozenset())
        found = read_software(live_machine(), [listed, listed])
        child.stdin.close()
    assert sorted(found.versions["NCCL"]) == ["2.28.9", "2.30.7"]
    assert found.versions["aws-ofi-nccl"] == ("1.19.1",)
    assert found.versions["torch"] == ("2.11.0+cu130",)
    preloaded = next(each for each in found.libraries if each.version == "2.28.9")
    assert (preloaded.how, preloaded.pids) == ("LD_PRELOAD", (listed.pid, listed.pid))
    assert found.architecture and found.kernel
    assert f"2.28.9 (LD_PRELOAD {tmp_path}/pre/" in found.twice
    assert decode_value(JobSoftware, encode_value(found)) == found


def test_vllm_chooses_a_library_by_its_own_variable() -> None:
    listed = ListedProcess(
        7, 1, 0, "python", "S", 1, (), {}, {"VLLM_NCCL_SO_PATH": "/opt/nccl/lib/libnccl.so.2"}, frozenset()
    )
    assert chosen_by("/opt/nccl/lib/libnccl.so.2.28.9", listed) == "VLLM_NCCL_SO_PATH"
    assert chosen_by(WHEEL, listed) == ""


def test_a_plugins_own_version_is_known_too() -> None:
    plugin = LoadedLibrary("aws-ofi-nccl", "1.20.0", "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so")
    of = JobSoftware((plugin,), "x86_64", "6.8.0", "580.95.05", ("NVIDIA H200",))
    assert [each.bug for each in judged(of).known_bugs] == ["ofi-multi-receive-hang"]
    fixed = replace(of, libraries=(replace(plugin, version="1.21.0"),))
    assert judged(fixed).known_bugs == ()
