"""The causes that a bug of a library can produce, and the effect of each cause on a job (see known_bugs.toml)."""

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
