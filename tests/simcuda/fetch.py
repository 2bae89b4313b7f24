"""Fetch what the simulated CUDA runs on and build it: `python -m tests.simcuda.fetch [--no-torch]`.

Everything comes from the package index by name and version and is only unpacked; gcc is all that the building needs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.simcuda import cudart, stubs
from tests.simcuda.machine import install, named
from tests.simcuda.places import HEADERS, NCCL, PROJECT, SOURCES, TORCH, Wheel, built, python, root

# glibc of the wheels, oldest first; a wheel is taken for any Python 3.11 and up that we may run on
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64")
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")


def main() -> None:
    """Fetch and build; a second call finds everything done."""
    parser = argparse.ArgumentParser(prog="python -m tests.simcuda.fetch", description=__doc__)
    parser.add_argument("--no-torch", action="store_true", help="leave out torch with CUDA (a wheel of 0.9 GB)")
    options = parser.parse_args()
    if not shutil.which("gcc"):
        sys.exit("simcuda: gcc is needed to build it, and is not there")
    wheels = (*(() if options.no_torch else (TORCH,)), *NCCL.values(), HEADERS)  # the largest first
    with ThreadPoolExecutor(len(wheels)) as together:
        list(together.map(fetch, wheels))
    build()
    if not options.no_torch:
        make_venv()
        stubs.build(root() / TORCH.folder / "torch/lib", built("stubs"))
        compile_torch()
        multiply()
    _say(f"simcuda: ready in {root()}")


def fetch(wheel: Wheel) -> None:
    """Unpack the wheel into its folder unless it is there."""
    folder = root() / wheel.folder
    if folder.exists():
        return
    _say(f"simcuda: fetching {wheel.name} {wheel.version} ...")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        kept = sorted((root() / "wheels").glob(f"{wheel.name.replace('-', '_')}-{wheel.version}-*.whl"))
        if not kept:
            _download(wheel, Path(scratch))
            kept = sorted(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(kept[0]) as archive:
            archive.extractall(Path(scratch) / "unpacked")
        os.replace(Path(scratch) / "unpacked", folder)


def _download(wheel: Wheel, into: Path) -> None:
    tag = f"{sys.version_info.major}{sys.version_info.minor}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [
        "--only-binary=:all:",
        "--python-version",
        tag,
        "--implementation",
        "cp",
        "--abi",
        f"cp{tag}",
        "--abi",
        "none",
    ]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, "--dest", str(into), f"{wheel.name}=={wheel.version}"], check=True)


def build() -> None:
    """Compile the libraries, unless those that are there are of the same sources."""
    stamp = built(".sources")
    sources = sorted(
        [
            *SOURCES.rglob("*.[ch]"),
            *SOURCES.rglob("*.map"),
            PROJECT / "tests/nvmlsim/nvmlsim.c",
            *Path(__file__).parent.glob("*.py"),
        ]
    )
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    built("").mkdir(parents=True, exist_ok=True)
    includes = [f"-I{SOURCES}", f"-I{SOURCES / 'include'}", "-isystem", str(_cuda() / "include")]
    driver = sorted([*(SOURCES / "driver").glob("*.c"), *(SOURCES / "collectives").glob("*.c")])
    _library("libcuda.so.1", driver, *includes, "-lpthread")
    verbs = SOURCES / "verbs"
    _library(
        "libibverbs.so.1", [*sorted(verbs.glob("*.c")), SOURCES / "driver/machine.c"], *includes,
        "-fvisibility=hidden", f"-Wl,--version-script={verbs / 'exports.map'}", "-lpthread",
    )  # fmt: skip
    _library("libnvidia-ml.so.1", [SOURCES / "nvml.c"])
    _library("libnccl-tuner.so", [SOURCES / "tuner.c"])
    _library("libpolling.so", [SOURCES / "polling.c"])
    _compile("ranks", [SOURCES / "ranks.c"])
    names = cudart.write(_cuda() / "lib/libcudart.so.12", built("cudart_names.c"), built("libcuda.so.1"))
    script = built("cudart.map")
    script.write_text("libcudart.so.12 { global: cuda*; __cuda*; local: *; };\n")
    _library(
        "libcudart.so.12", [SOURCES / "cudart.c", names], *includes, f"-Wl,--version-script={script}",
        "-Wl,-rpath,$ORIGIN", str(built("libcuda.so.1")),
    )  # fmt: skip
    stamp.write_text(digest)


def _cuda() -> Path:
    return root() / HEADERS.folder / "nvidia/cuda_runtime"


def _library(name: str, sources: list[Path], *flags: str) -> None:
    _compile(name, sources, "-shared", "-fPIC", f"-Wl,-soname,{name}", *flags)


def _compile(name: str, sources: list[Path], *flags: str) -> None:
    """Write the file at once: a library that a process has mapped must not change under it."""
    partial = built(f"{name}.partial")
    command = ["gcc", "-O2", "-g", *WARNINGS, "-o", str(partial), *map(str, sources), *flags, "-ldl"]
    subprocess.run(command, check=True)
    os.replace(partial, built(name))


def make_venv() -> None:
    """Make an interpreter that finds torch with CUDA first and everything else where this one does."""
    venv = root() / "venv"
    stamp = venv / ".made-for"
    here = [path for path in sys.path if path.endswith("site-packages")]
    if stamp.exists() and stamp.read_text() == "\n".join(here):
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)], check=True)
    packages = next(venv.glob("lib/python*/site-packages"))
    (packages / "a_torch.pth").write_text(f"{root() / TORCH.folder}\n")
    (packages / "b_project.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in here))
    stamp.write_text("\n".join(here))


def compile_torch() -> None:
    """Let Python write the bytecode of what a rank imports: without it a start takes three times as long."""
    stamp = root() / TORCH.folder / ".compiled"
    if stamp.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | install(named("pcie2-pix"), Path(folder), torch=True) | {"PYTHONPATH": str(PROJECT)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run(
            [str(python()), "-c", "import tests.simcuda.simtorch, torch.distributed"], env=environ, check=True
        )
    stamp.touch()


def multiply() -> None:
    """Have the product that preflight tests GPUs with in a file: it takes a CPU longer than a GPU may take."""
    if built("products").exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | install(named("pcie2-pix"), Path(folder), torch=True) | {"PYTHONPATH": str(PROJECT)}
        code = """if True:
            import tests.simcuda.simtorch, torch
            from preflight.search.gpus.gpu_tests import PRODUCTS
            from preflight.trial.rank.gpu_test_cuda import TorchProduct
            TorchProduct(torch.device("cuda", 0), torch.float32, PRODUCTS[0].rows).multiply_us()"""
        subprocess.run([str(python()), "-c", code], env=environ, check=True)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
