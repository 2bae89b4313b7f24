"""Which GPUs to use, how each is tested without NCCL, and which speeds their links should reach."""
