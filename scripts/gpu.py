"""Run everything that needs an NVIDIA GPU, and leave one JSON: `python -m scripts.gpu FOLDER`.

For a machine without network: --wheels names a folder with what its Python lacks. Exit code 0 where every part passed,
1 where one failed or a check found something, 3 where there is no GPU.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
LIMIT_S = 540.0
RESULTS = "gpu-results.json"
SETTINGS = "[pytest]\nmarkers =\n    gpu\n    timeout\n"  # not the project's: its plugins need not be here
TAIL = 4000  # characters of what a part said


@dataclass(frozen=True, slots=True)
class Part:
    """A command, the most seconds that it may take, and what else has to be there for it."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    needs: str = ""  # a program
    found: tuple[int, ...] = (1,)  # exit codes that say something of the machine, not of the command


@dataclass(slots=True)
class Result:
    """How a part ended; `document` is what it left beside its words."""

    name: str
    outcome: str  # passed | found | failed | timed out | not run
    took_s: float = 0.0
    code: int | None = None
    command: str = ""
    said: str = ""
    document: Any = field(default=None)


def main() -> int:
    """Run the parts one after another within the limit."""
    parser = argparse.ArgumentParser(prog="python -m scripts.gpu", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the results go")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="wheels of what this Python lacks")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="for all parts (540)")
    parser.add_argument("--check", default="", metavar="OPTIONS", help="more options for `preflight check`")
    options = parser.parse_args()
    if not glob.glob("/dev/nvidia[0-9]*"):
        sys.stderr.write("scripts.gpu: there is no NVIDIA GPU here (no /dev/nvidia<N>)\n")
        return 3
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    environ = environment(folder, unpack(options.wheels, folder / "packages") if options.wheels else [])
    until = time.monotonic() + options.limit
    results: list[Result] = []
    for part in parts(folder, shlex.split(options.check)):
        results.append(run(part, folder, environ, until))
        sys.stdout.write(f"{part.name:<10} {results[-1].outcome}, {results[-1].took_s:.0f} s\n")
        sys.stdout.flush()
        write(folder / RESULTS, results)
    sys.stdout.write(f"{folder / RESULTS}\n")
    return 0 if all(result.outcome in ("passed", "not run") for result in results) else 1


def parts(folder: Path, check: Sequence[str]) -> tuple[Part, ...]:
    """Return what is run, the quickest first: what the time does not suffice for is the last of it."""
    python = (sys.executable, "-m")
    preflight = (*python, "preflight")
    tests = ("-q", "-m", "gpu", "-c", str(folder / "pytest.ini"), "--rootdir", str(PROJECT), "-p", "no:cacheprovider")
    checked = (*preflight, "check", "--backend", "nccl", *check)
    return (
        Part("probe", (*preflight, "probe", "--json", str(folder / "probe.json")), 60),
        Part("nvidia-smi", ("nvidia-smi", "-q", "-x", "-f", str(folder / "nvidia-smi.xml")), 60, needs="nvidia-smi"),
        Part("capture", (*preflight, "capture", "-o", str(folder / "capture.json")), 60),
        Part("captured", (*preflight, "probe", "--machine", str(folder / "capture.json"), "--json", "-"), 60),
        Part("memory", (*python, "scripts.gpu_jobs", "memory"), 120, found=()),
        Part("2 ranks", (*python, "scripts.gpu_jobs", "ranks", "2", str(folder / "2-ranks")), 150, found=()),
        Part("4 ranks", (*python, "scripts.gpu_jobs", "ranks", "4", str(folder / "4-ranks")), 150, found=()),
        Part("quick", (*checked, "--profile", "quick", "--json", str(folder / "quick.json")), 200),
        Part("tests", (*python, "pytest", *tests, "--junit-xml", str(folder / "tests.xml"), str(PROJECT / "tests/gpu")),
             240, found=()),
        Part("standard", (*checked, "--profile", "standard", "--json", str(folder / "standard.json")), 400),
    )  # fmt: skip


def unpack(wheels: Path, packages: Path) -> list[str]:
    """Unpack each wheel into a folder and return the folder, as a list for PYTHONPATH."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    return [str(packages)]


def environment(folder: Path, packages: list[str]) -> dict[str, str]:
    """Return what the parts run in: this checkout's preflight, and nothing that tunes NCCL."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TORCH_NCCL_"))}
    path = [str(PROJECT), *packages, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    (folder / "pytest.ini").write_text(SETTINGS)
    return inherited | {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}


def run(part: Part, folder: Path, environ: Mapping[str, str], until: float) -> Result:
    """Run one part to its end or its limit."""
    left_s = until - time.monotonic()
    command = list(part.command)
    if part.needs and not shutil.which(part.needs):
        return Result(part.name, "not run", said=f"{part.needs} is not here")
    if left_s < 5:
        return Result(part.name, "not run", said="the time for all parts was up")
    limit_s = min(part.limit_s, left_s)
    if "check" in command and "--deadline" not in command:
        command += ["--deadline", f"{max(1.0, limit_s - 15):.0f}"]  # it ends by itself, and says what it knows
    since = time.monotonic()
    place = folder / part.name.replace(" ", "-")
    place.mkdir(exist_ok=True)
    with subprocess.Popen(
        command, cwd=place, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, outcome = process.communicate(timeout=limit_s)[0], ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, outcome = process.communicate()[0], "timed out"
    code = process.returncode
    outcome = outcome or ("passed" if code == 0 else "found" if code in part.found else "failed")
    result = Result(part.name, outcome, time.monotonic() - since, code, shlex.join(command), said[-TAIL:])
    result.document = document_of(part, folder, said)
    if part.name == "nvidia-smi" and result.outcome == "passed" and any(not each["same"] for each in result.document):
        result.outcome = "found"
    return result


def document_of(part: Part, folder: Path, said: str) -> Any:
    """Return what the part left: its JSON, the counts of its tests, or how probe and nvidia-smi compare."""
    try:
        if part.name == "tests":
            return counts(ET.parse(folder / "tests.xml").getroot())
        if part.name == "nvidia-smi":
            probe = json.loads((folder / "probe.json").read_text())
            return compare(probe, ET.parse(folder / "nvidia-smi.xml").getroot())
        if part.name in ("memory", "2 ranks", "4 ranks", "captured"):
            return json.loads(said[said.index("{") :])
        return json.loads((folder / f"{part.name}.json").read_text())
    except (OSError, ValueError, ET.ParseError) as error:
        return {"unreadable": str(error)}


def counts(junit: ET.Element) -> dict[str, Any]:
    """Return how many tests ran, and the reason of each that did not or failed."""
    cases = list(junit.iter("testcase"))
    told = {
        kind: {str(case.get("name")): str(each.get("message")) for case in cases for each in case.findall(kind)}
        for kind in ("failure", "error", "skipped")
    }
    return {"tests": len(cases), **told}


def compare(probe: Mapping[str, Any], smi: ET.Element) -> list[dict[str, Any]]:
    """Return what nvidia-smi and the probe say of each GPU, side by side."""
    node = probe["nodes"][0] if "nodes" in probe else probe
    ours = {gpu["uuid"]: gpu for gpu in node["gpus"]}
    rows = []
    for gpu in smi.findall("gpu"):
        mine = ours.get(_text(gpu, "uuid"), {})
        told: dict[str, tuple[object, object]] = {
            "uuid": (_text(gpu, "uuid"), mine.get("uuid")),
            "name": (_text(gpu, "product_name"), mine.get("name")),
            "bus": (str(gpu.get("id")).lower()[-12:], str(mine.get("bdf"))[-12:]),
            "memory_mib": (_number(gpu, "fb_memory_usage/total"), _mib(mine.get("memory_total_bytes"))),
            "sm_max_mhz": (_number(gpu, "max_clocks/sm_clock"), (mine.get("clocks") or {}).get("sm_max_mhz")),
            "pcie_gen_max": (
                _number(gpu, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"), (mine.get("pcie") or {}).get("gen_max")
            ),
        }  # fmt: skip
        rows += [
            {"gpu": _text(gpu, "uuid"), "what": what, "nvidia_smi": a, "probe": b, "same": a == b}
            for what, (a, b) in told.items()
        ]
    return rows


def _text(gpu: ET.Element, path: str) -> str:
    return (gpu.findtext(path) or "").strip()


def _number(gpu: ET.Element, path: str) -> int | None:
    first = _text(gpu, path).split(" ")[0]
    return int(first) if first.isdigit() else None


def _mib(size_bytes: int | None) -> int | None:
    return None if size_bytes is None else size_bytes >> 20


def write(path: Path, results: Sequence[Result]) -> None:
    """Write all results so far, at once: what comes later may end the machine."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"argv": sys.argv, "parts": [asdict(each) for each in results]}, indent=1))
    os.replace(partial, path)


if __name__ == "__main__":
    sys.exit(main())
