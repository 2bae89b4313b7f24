"""The choice of the GPUs, the plan of their tests without NCCL, and the speeds that their links should reach."""
