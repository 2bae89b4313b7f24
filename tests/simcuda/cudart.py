"""Write the stand-in for libcudart.so.12: every name that the real one exports, ours or a refusal."""

from __future__ import annotations

import struct
from pathlib import Path

SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
DYNSYM, FUNCTION, PER_THREAD = 11, 2, ("_ptsz", "_ptds")


def exported(library: Path) -> set[str]:
    """Return the functions that a 64-bit ELF library defines for others."""
    image = library.read_bytes()
    offset, size, count = struct.unpack_from("<Q", image, 0x28)[0], *struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, offset + i * size) for i in range(count)]
    found: set[str] = set()
    for section in (each for each in sections if each[1] == DYNSYM):
        names = sections[section[6]][4]
        for name, info, _, defined, _, _ in SYMBOL.iter_unpack(image[section[4] : section[4] + section[5]]):
            if defined and info & 15 == FUNCTION:
                found.add(image[names + name : image.index(b"\0", names + name)].decode())
    return found


def write(real: Path, out: Path, driver: Path) -> Path:
    """Write the C source of the names and return its path."""
    ours = {name.removeprefix("simrt_") for name in exported(driver) if name.startswith("simrt_")}
    local = {"cudaGetDeviceProperties", "cudaGetDeviceProperties_v2"}  # written in cudart.c
    lines = ["extern int simrt_refuse(const char *);", "#define OURS(name, to) \\"]
    lines.append(
        '    __asm__(".globl " #name "\\n.type " #name ",@function\\n" #name ": jmp *simrt_" #to "@GOTPCREL(%rip)\\n");'
    )
    for name in sorted(exported(real)):
        base = name
        for ending in PER_THREAD:
            base = base.removesuffix(ending)
        if name.startswith("_") and not name.startswith("__cuda"):
            continue
        if base in local or base.startswith("__cuda"):
            if base != name or base in local:
                continue
            lines.append(
                f"OURS({name}, {base})" if base in ours else f'int {name}(void) {{ return simrt_refuse("{name}"); }}'
            )
        elif base in ours:
            lines.append(f"OURS({name}, {base})")
        else:
            lines.append(f'int {name}(void) {{ return simrt_refuse("{name}"); }}')
    out.write_text("\n".join(lines) + "\n")
    return out
