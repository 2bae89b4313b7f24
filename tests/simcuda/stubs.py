"""Libraries of NVIDIA's that torch is linked to and that are not there: the names it asks for, all refusing.

Only names are read from torch's own files; a stub holds nothing else.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

OURS = {"libcudart.so.12", "libcuda.so.1", "libnccl.so.2"}
PREFIX = re.compile(
    r"(?:cudnn|cufft|curand|cusparseLt|cusparse|cublasLt|cublas|cusolver|cuFile|nvrtc|cupti|nvshmem)", re.IGNORECASE
)


def build(torch_libraries: Path, out: Path) -> None:
    """Write a stub for each library that is needed; those that are there already are kept."""
    libraries = sorted(torch_libraries.glob("*.so"))
    needed = {name for library in libraries for name in _needed(library)} - OURS
    if all((out / name).exists() for name in needed):
        return
    out.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, set[tuple[str, str]]] = {name: set() for name in needed}
    for library in libraries:
        for version, symbol in _undefined(library):
            for name in [version] if version in needed else _by_prefix(symbol, needed):
                wanted[name].add((version, symbol))
    for name, symbols in wanted.items():
        _write(name, symbols, out)


def _needed(library: Path) -> list[str]:
    return re.findall(r"NEEDED\s+(lib(?:cu|nv)\w+\.so\.\d+)", _tool("-p", library))


def _undefined(library: Path) -> Iterator[tuple[str, str]]:
    for line in _tool("-T", library).splitlines():
        if "*UND*" in line:
            *_, version, symbol = ["", *line.replace("(", " ").replace(")", " ").split()]
            yield ("" if re.fullmatch(r"[0-9a-f]+", version) else version), symbol


def _by_prefix(symbol: str, needed: set[str]) -> list[str]:
    found = PREFIX.match(symbol)
    if not found:
        return []
    key = found[0].lower()
    return [name for name in needed if re.match(r"lib([A-Za-z]+?)(?:_host)?\.so", name)[1].lower() == key]  # type: ignore[index]


def _tool(option: str, library: Path) -> str:
    return subprocess.run(["objdump", option, str(library)], capture_output=True, text=True, check=True).stdout


def _write(name: str, symbols: set[tuple[str, str]], out: Path) -> None:
    source, script = out / f"{name}.c", out / f"{name}.map"
    names = sorted({symbol for _, symbol in symbols})
    lines = ["#include <stdio.h>", "static int refuse(const char *name) {"]
    lines += ['    fprintf(stderr, "[simcuda] REFUSED: %s is not simulated\\n", name);', "    return 1;", "}"]
    lines += [f'int {symbol}(void) {{ return refuse("{symbol}"); }}' for symbol in names]
    source.write_text("\n".join(lines) + '\nint simcuda_stub(void) { return refuse("a stub"); }\n')
    versions = sorted({version for version, _ in symbols if version and version != "Base"})
    flags = []
    if versions:
        script.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions[:1]))
        flags = [f"-Wl,--version-script={script}"]
    subprocess.run(
        ["gcc", "-w", "-shared", "-fPIC", "-o", str(out / name), f"-Wl,-soname,{name}", *flags, str(source)], check=True
    )
