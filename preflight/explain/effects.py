"""What a named cause does to a job, with the terms of known_bugs.toml.

Only causes that may be a bug of a library are listed.
"""

from __future__ import annotations

from preflight.model.known_bugs import Effect

EFFECTS = {
    "watchdog_timeout_straggler": Effect.HANGS,
    "hang_no_error": Effect.HANGS,
    "heartbeat_monitor": Effect.HANGS,
    "segfault_worker": Effect.CRASHES,
    "cuda_illegal_address": Effect.CRASHES,
    "cuda_oom_masked": Effect.OUT_OF_MEMORY,
    "host_oom_killed": Effect.HOST_MEMORY,
}
