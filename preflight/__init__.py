"""preflight: find out why NCCL will fail, before the job does."""

__version__ = "0.1.0.dev0"
