"""Which GPUs to use, how each is tested below NCCL, and what their links should reach."""
