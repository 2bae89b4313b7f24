"""What the tests add to vLLM's workers (`--worker-extension-cls`): a call that blocks one of them, and gloo."""

from __future__ import annotations

import fcntl

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator  # type: ignore[import-not-found]

# With AVX-512, vLLM's workers on one CPU reduce through shared memory. Then there is no connection that can be cut.
CpuCommunicator._all_group_ranks_share_shm_group_name = lambda self: False


class Blockable:
    """Calls for `/collective_rpc`, which come through the shared-memory ring."""

    rank: int

    def wait_for_lock(self, path: str) -> None:
        """Wait on worker 1 until nobody holds the lock of a file."""
        if self.rank == 1:
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_EX)

    def do_nothing(self) -> None:
        """Return at once."""
