"""Install the wheel beside five releases of torch, a clean environment each, and check: `make pairs`.

Outside CI: several GB are downloaded for each pair. Prints a Markdown table; exit code 0 where every pair passed.
`python3.10` to `python3.13` have to be on PATH. The folder of a pair is removed as soon as it has been tried.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAIRS = ("3.10=2.4.0", "3.12=2.6.0", "3.13=2.9.0", "3.11=2.13.0", "3.13=2.15.0")
PROBE = ("python", "-c", "import preflight; preflight.probe()")
CHECK = ("preflight", "check", "--nproc", "2", "--profile", "quick")
INSTALL_S, RUN_S = 1500, 300
HEAD = "| Python | torch | pip kept torch | `pip check` | `preflight.probe()` | `preflight check` | its headline |\n"


def main() -> int:
    """Try each pair; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.try_pairs", description=__doc__)
    parser.add_argument("wheel", type=Path, help="the wheel of preflight, as `make dist` builds it")
    parser.add_argument("pairs", nargs="*", default=PAIRS, help=f"PYTHON=TORCH ...; by default {' '.join(PAIRS)}")
    options = parser.parse_args()
    print(f"{options.wheel.name}, {time.strftime('%Y-%m-%d')}, {platform.machine()}, {platform.platform()}\n")  # noqa: T201
    print(HEAD + "|---|---|---|--:|--:|--:|---|", flush=True)  # noqa: T201
    passed = [_try(options.wheel.resolve(), *pair.split("=")) for pair in options.pairs]
    return 0 if all(passed) else 1


def _try(wheel: Path, version: str, torch: str) -> bool:
    """Print the row of a pair; return whether it passed."""
    with tempfile.TemporaryDirectory(prefix="preflight-pair-") as name:
        folder = Path(name)
        venv = folder / "venv"
        subprocess.run([f"python{version}", "-m", "venv", venv], check=True)
        pip = ("python", "-m", "pip", "--disable-pip-version-check")
        for what in (f"torch=={torch}", str(wheel)):
            done = _run(folder, *pip, "install", "--quiet", "--no-cache-dir", what, limit_s=INSTALL_S)
            if done.returncode:
                print(f"| {version} | {torch} | `pip install {what}`: {_last(done)} |", flush=True)  # noqa: T201
                return False
        python = _run(folder, "python", "--version").stdout.split()[1]
        shown = _run(folder, *pip, "show", "torch").stdout
        has = next(line.partition(" ")[2] for line in shown.splitlines() if line.startswith("Version:"))
        checked, probed = _run(folder, *pip, "check"), _run(folder, *PROBE)
        ran = _run(folder, *CHECK)
        report = folder / "preflight-report.json"
        said = json.loads(report.read_text())["headline"] if report.exists() else _last(ran)
        kept = "yes" if has.partition("+")[0] == torch else "NO"
        codes = checked.returncode, probed.returncode, ran.returncode
        print(f"| {python} | {has} | {kept} | {' | '.join(map(str, codes))} | {said} |", flush=True)  # noqa: T201
        for each in (checked, probed, ran):
            if each.returncode:
                print(each.stdout[-3000:] + each.stderr[-3000:], file=sys.stderr)  # noqa: T201
        return kept == "yes" and not any(codes)


def _run(folder: Path, *argv: str, limit_s: float = RUN_S) -> subprocess.CompletedProcess[str]:
    """Run a command of the pair's environment in the pair's folder, with nothing else of ours around it."""
    environ = {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder)}
    program = shutil.which(argv[0], path=environ["PATH"]) or argv[0]
    return subprocess.run(
        (program, *argv[1:]),
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def _last(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that a command said, with its exit code."""
    lines = (done.stdout + done.stderr).strip().splitlines() or [""]
    return f"exit code {done.returncode}: {lines[-1]}"


if __name__ == "__main__":
    sys.exit(main())
