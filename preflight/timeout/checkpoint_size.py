"""The size in bytes of a job's checkpoint and messages.

See docs/dev/nccl-facts.md, section 10.2.
"""

from __future__ import annotations

from preflight.model.job import Dtype, Job, Optimizer, ParamCount, Save, Strategy

WEIGHT_BYTES = {Dtype.FP32: 4, Dtype.BF16: 2, Dtype.FP16: 2}
MASTER_BYTES = {Dtype.FP32: 0, Dtype.BF16: 4, Dtype.FP16: 4}  # the optimizer's fp32 copy of 16-bit weights
# Adafactor's factored moments are next to nothing: a row and a column for a matrix.
MOMENT_BYTES = {
    Optimizer.ADAMW: 8,
    Optimizer.ADAMW_8BIT: 2,
    Optimizer.ADAFACTOR: 0,
    Optimizer.SGD: 0,
    Optimizer.MOMENTUM: 4,
}
DDP_BUCKET_BYTES = 25 << 20  # torch's bucket_cap_mb
ZERO_BUCKET_ELEMENTS = 500_000_000  # DeepSpeed's reduce_bucket_size and allgather_bucket_size
# A wrapped unit is a layer. Without config.json it is taken for an eighth of a model, and for no more than a layer of a
# dense model of 500 B parameters has in bf16.
FSDP_LARGEST_SHARE, FSDP_LARGEST_BYTES = 8, 8 * 10**9
LARGEST_LAYER = 1.5  # times the average one


def weight_bytes(job: Job, params: ParamCount) -> int:
    """Return the bytes of all parameters of `params` in the data type of the forward pass."""
    return params.total * WEIGHT_BYTES[job.dtype]


def bytes_per_parameter(job: Job) -> int:
    """Return the bytes per trained parameter in a checkpoint: the weight, its fp32 copy and the optimizer's states."""
    return WEIGHT_BYTES[job.dtype] + MASTER_BYTES[job.dtype] + MOMENT_BYTES[job.optimizer]


def checkpoint_bytes(job: Job, params: ParamCount) -> int:
    """Return the size in bytes of a checkpoint from which training can resume.

    With LoRA, the checkpoint has only the trained parameters.
    """
    trained = params.total if job.lora_share is None else max(1, round(params.total * job.lora_share))
    return trained * bytes_per_parameter(job)


def gathered_bytes(job: Job, params: ParamCount) -> int:
    """Return how many bytes rank 0 must receive from other ranks to write a full checkpoint.

    The result is 0 if the checkpoint is of another kind. With DDP, the result is also 0, because every rank has all
    data.
    """
    if job.save is not Save.FULL:
        return 0
    whole = checkpoint_bytes(job, params)
    match job.strategy:
        case Strategy.DDP:
            return 0
        case Strategy.ZERO1 | Strategy.ZERO2:  # the optimizer's states are divided, the weights are not
            trained = whole // bytes_per_parameter(job)
            return whole - trained * WEIGHT_BYTES[job.dtype]
        case Strategy.FSDP | Strategy.ZERO3:
            return whole


def rank_bytes(job: Job, params: ParamCount) -> int:
    """Return how many bytes of a checkpoint each rank's GPU holds under the job's strategy."""
    whole = checkpoint_bytes(job, params)
    weights = whole // bytes_per_parameter(job) * WEIGHT_BYTES[job.dtype]
    match job.strategy:
        case Strategy.DDP:
            return whole
        case Strategy.ZERO1 | Strategy.ZERO2:
            return weights - (weights - whole) // job.world_size
        case Strategy.FSDP | Strategy.ZERO3:
            return -(-whole // job.world_size)


def message_bytes(job: Job, params: ParamCount) -> int:
    """Return a high estimate of the size in bytes of the largest collective in training."""
    weights = weight_bytes(job, params)
    match job.strategy:
        case Strategy.DDP:
            return DDP_BUCKET_BYTES
        case Strategy.FSDP:
            if job.shape is None:
                return max(DDP_BUCKET_BYTES, min(weights // FSDP_LARGEST_SHARE, FSDP_LARGEST_BYTES))
            ends = 2 * job.shape.vocab_size * job.shape.hidden_size * WEIGHT_BYTES[job.dtype]  # they form one unit
            return max(DDP_BUCKET_BYTES, min(weights, max(ends, int(LARGEST_LAYER * weights / job.shape.layers))))
        case Strategy.ZERO1 | Strategy.ZERO2 | Strategy.ZERO3:
            return max(DDP_BUCKET_BYTES, min(weights, ZERO_BUCKET_ELEMENTS * WEIGHT_BYTES[job.dtype]))
