"""The conservative settings that NCCL has on a node, one file per subject."""
