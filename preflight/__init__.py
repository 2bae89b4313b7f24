"""preflight: find out why NCCL will fail, before the job does."""

from __future__ import annotations

import os
from datetime import timedelta

from preflight.errors import UsageError

__all__ = ["__version__", "pg_timeout"]

__version__ = "0.1.0"

PG_TIMEOUT = "PREFLIGHT_PG_TIMEOUT_S"
LONGEST_PG_TIMEOUT_S = 7 * 86400


def pg_timeout() -> timedelta | None:
    """Return the process group's timeout from a sourced `preflight.env`: PREFLIGHT_PG_TIMEOUT_S, whole seconds.

    None where the variable is not set or empty, which `torch.distributed.init_process_group(timeout=...)` takes for its
    own default. Raises UsageError where it is set to anything but 1 to 604800. Imports neither torch nor the rest.
    """
    text = os.environ.get(PG_TIMEOUT, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and 0 < int(text) <= LONGEST_PG_TIMEOUT_S):
        raise UsageError(f"{PG_TIMEOUT}={text[:40]!r}: not whole seconds from 1 to {LONGEST_PG_TIMEOUT_S}")
    return timedelta(seconds=int(text))
