"""Find the NCCL library that this process has loaded."""

from __future__ import annotations

import ctypes
import os

LIBRARY = "libnccl.so.2"  # its name for the loader, whatever the file is called; LD_PRELOAD's has the same


def loaded_nccl(library: str = LIBRARY) -> str:
    """Return the version of the loaded NCCL library, or "" if no such library is loaded."""
    try:
        nccl = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        code = ctypes.c_int(0)
        if nccl.ncclGetVersion(ctypes.byref(code)) != 0:
            return ""
    except (OSError, AttributeError):
        return ""
    return f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}" if code.value >= 20900 else ""
