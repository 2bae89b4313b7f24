"""Choose the GPUs, plan the tests that don't use NCCL, and compute the expected speeds of the links."""
