"""Choose the GPUs, plan their tests without NCCL, and compute the expected speeds of their links."""
