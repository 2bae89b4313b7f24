"""`preflight probe` and `preflight capture` as a person runs them: sources, options and their errors."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.command import Command
from tests.machines.fleet import MACHINES
from tests.nvmlsim.machines import BROKEN
from tests.nvmlsim.simulate import simulate

pytestmark = pytest.mark.heavy(6)

HERE = Path(__file__).parent.parent / "machines"
TEN = str(HERE / "ten_gpus.txt")


def test_a_capture_piped_into_a_probe_gives_what_the_probe_gives(command: Command) -> None:
    captured = command.run("capture")
    assert captured.code == 0
    (command.cwd / "capture.json").write_text(captured.stdout)
    live, again = (command.run("probe", *o, "--json", "-").document for o in ((), ("--machine", "capture.json")))
    assert _comparable(again) == _comparable(live)
    assert [finding["check"] for finding in again["findings"]] == [finding["check"] for finding in live["findings"]]


def _comparable(document: dict[str, object]) -> object:
    """Return the node without what changes between two runs, and with every name and address of it as one word."""
    text = json.dumps(document["nodes"])
    host = re.escape(socket.gethostname())
    text = re.sub(rf"(?<![A-Za-z0-9])(?:{host}|host-1)(?![A-Za-z0-9])", "HOST", text)
    text = re.sub(r'"(?:\d{1,3}\.){3}\d{1,3}(?:/\d+)?"|"[0-9a-f:]*::?[0-9a-f:]+"', '"ADDRESS"', text)
    text = re.sub(r'"(memory_available_bytes|commit_left_bytes|free_bytes|stale_nccl_bytes)": -?\d+', r'"\1": 0', text)
    return json.loads(text)


def test_a_capture_of_this_machine_goes_into_a_file_and_names_nothing(command: Command) -> None:
    assert command.run("capture", "-o", "here.json").stdout == ""
    text = (command.cwd / "here.json").read_text().replace("proc/sys/vm/", "")  # the kernel's word for memory
    assert json.loads(text)["preflight_capture"] == 1
    host = re.escape(socket.gethostname())
    assert not re.search(rf"(?<![A-Za-z0-9]){host}(?![A-Za-z0-9])", text)
    for address in Path("/sys/class/net").glob("*/address"):
        mac = address.read_text().strip()
        assert mac == "00:00:00:00:00:00" or mac not in text
    shown = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=False).stdout
    for ip in re.findall(r"inet6? ([0-9a-f.:]+)", shown):
        assert ip in ("127.0.0.1", "::1") or f'"{ip}"' not in text


@pytest.mark.parametrize("name", MACHINES)
def test_a_simulated_machine_probed_live_and_by_its_capture_gives_the_same_document(
    name: str, command: Command, tmp_path: Path
) -> None:
    root = tmp_path / "machine"
    root.mkdir()
    MACHINES[name](root)
    live = command.run("probe", "--sysroot", str(root), "--json", "-")
    command.run("capture", "--sysroot", str(root), "-o", "machine.json")
    again = command.run("probe", "--machine", "machine.json", "--json", "-")
    assert _scrubbed(again.document) == _scrubbed(live.document)
    assert again.code == live.code


def _scrubbed(document: object) -> object:
    """Return a document with its UUIDs and GUIDs as one word each: the capture has others in their places."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", json.dumps(document))
    return json.loads(re.sub(r"([0-9a-f]{4}:){3,7}[0-9a-f]{4}", "GUID", text))


def test_a_topology_is_read_from_stdin(command: Command) -> None:
    with command.start("probe", "--topo", "-", "--gpus", "6-9", "--json", "-", stdin=subprocess.PIPE) as process:
        out, _ = process.communicate(Path(TEN).read_text(), timeout=60)
    document = json.loads(out)
    assert len(document["nodes"][0]["gpus"]) == 10
    assert document["gpu_set"]["crossings"] == []
    assert document["findings"] == [] or {f["check"] for f in document["findings"]} == {"nic-numa"}


def test_a_set_across_the_sockets_is_told_on_the_page(command: Command) -> None:
    ran = command.run("probe", "--topo", TEN, "--gpus", "3,4,5,6")
    assert ran.code == 0
    assert "crosses NUMA nodes (sockets): node 0 has GPUs 3,4; node 1 has GPUs 5,6" in ran.stdout
    assert "better: --gpus 5,6,7,8" in ran.stdout
    fine = command.run("probe", "--topo", TEN, "--gpus", "6,7,8,9")
    assert "within one NUMA node (socket) and one PCIe switch" in fine.stdout
    assert "crosses NUMA" not in fine.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topo", TEN, "--machine", TEN), "one machine at a time"),
        (("--topo", "/nowhere"), "no such file"),
        (("--topo", "/dev/null"), "not the output of"),
        (("--machine", TEN), "not JSON"),
        (("--machine", "/dev/null"), "not JSON"),
        (("--sysroot", "/nowhere"), "not a directory"),
        (("--topo", TEN, "--gpus", "10"), "there is no GPU 10"),
        (("--topo", TEN, "--gpus", "1,1"), "named twice"),
        (("--topo", TEN, "--gpus", "x"), "names no GPU"),
        (("--topo", TEN, "--gpus", ""), "--gpus"),
    ],
)
def test_a_wrong_source_or_gpu_is_a_usage_error_in_one_line(
    arguments: tuple[str, ...], message: str, command: Command
) -> None:
    ran = command.run("probe", *arguments)
    assert ran.code == 2
    assert message in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stdout == ""


def test_reason_is_one_line_of_the_failures_of_its_classes(command: Command, tmp_path: Path) -> None:
    simulate(BROKEN["a GPU that fell off the bus"][1], tmp_path)
    lost = command.run("probe", "--sysroot", str(tmp_path), "--reason", "gpu")
    assert (lost.code, lost.stdout) == (1, "preflight probe: gpu-lost unknown GPU 6 (0000:7b:00.0)\n")
    others = command.run("probe", "--sysroot", str(tmp_path), "--reason", "fabric, application")
    assert (others.code, others.stdout) == (0, "")
    wrong = command.run("probe", "--reason", "gpus")
    assert (wrong.code, wrong.stderr.count("\n")) == (2, 1) and "no class 'gpus'" in wrong.stderr
