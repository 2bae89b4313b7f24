"""The minimum memory that a job needs, and the memory that frameworks usually keep.

The minimum can show that a job does not fit, but not that the job fits.
"""
# The bytes per parameter come from docs/dev/nccl-facts.md, section 10.2. The real need is lower for jobs that offload
# to the CPU, quantize trained weights, or use tensor or pipeline parallelism.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from preflight.model.facts import NodeFacts, SystemFacts
from preflight.model.fit import (
    Batch,
    Certainty,
    Fit,
    FitVerdict,
    Headroom,
    MemoryNeed,
    MemoryPhase,
    MemoryPlace,
    MemoryTerm,
)
from preflight.model.gap import Gap
from preflight.model.job import Dtype, Job, Optimizer, ParamCount, Save, Strategy
from preflight.timeout.checkpoint_size import MASTER_BYTES, MOMENT_BYTES, WEIGHT_BYTES

# How many of its moments torch keeps in the weights' own type; the others are as MOMENT_BYTES says.
OWN_TYPE_MOMENTS = {Optimizer.ADAMW: 2, Optimizer.MOMENTUM: 1}
DIVIDES_WEIGHTS = frozenset({Strategy.FSDP, Strategy.ZERO3})
DIVIDES_GRADIENTS = frozenset({Strategy.FSDP, Strategy.ZERO2, Strategy.ZERO3})
DEEPSPEED = frozenset({Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3})
NO_GPU = Gap("there is no GPU here")
NO_SHAPE = Gap("it depends on the sequence length, the micro batch and the model's config.json")
NOT_PURE = "not in pure 16-bit training"
NOT_KEPT = "none if the optimizer works in the backward pass"  # LOMO, torchtune
QUANTIZED_BITS = 4  # of a frozen weight, as in QLoRA
LORA_SHARE = 0.01
MOST_BYTES = 1 << 60  # of one GPU: who asks for more has mistyped a number
RANK = {FitVerdict.MAY_FIT: 0, FitVerdict.UNKNOWN: 1, FitVerdict.NOT_AS_USUAL: 2, FitVerdict.CANNOT_FIT: 3}


def will_it_fit(job: Job, headroom: Headroom, batch: Batch | None = None) -> Fit:
    """Return the memory that the job needs on each GPU and on this host, compared with the free memory.

    Without `batch`, the memory for activations is left out.
    """
    # If the job does not fit, the result also lists changes to the job that help.
    fit = _fit(job, headroom, batch)
    is_short = fit.verdict in (FitVerdict.NOT_AS_USUAL, FitVerdict.CANNOT_FIT)
    return replace(fit, ways_out=ways_out(job, headroom, batch, fit.verdict)) if is_short else fit


def ways_out(job: Job, headroom: Headroom, batch: Batch | None, verdict: FitVerdict) -> tuple[str, ...]:
    """Return texts on the changes to the job that would give a better memory verdict than `verdict`."""
    changes = {
        f"fsdp or zero3 divides everything among the {job.world_size} ranks": replace(job, strategy=Strategy.FSDP),
        "a sharded checkpoint gathers nothing": replace(job, save=Save.SHARDED),
        "an 8-bit optimizer keeps smaller states": replace(job, optimizer=Optimizer.ADAMW_8BIT),
        "LoRA trains, say, 1% of the parameters": replace(job, lora_share=LORA_SHARE),
    }
    return tuple(way for way, other in changes.items() if RANK[_fit(other, headroom, batch).verdict] < RANK[verdict])


def _fit(job: Job, headroom: Headroom, batch: Batch | None) -> Fit:
    if job.params is None:
        return Fit(FitVerdict.UNKNOWN, ())
    activations = tuple(activation_terms(job, batch)) if batch else ()
    training = (*state_terms(job, job.params), *gradient_terms(job, job.params))
    saving = (*state_terms(job, job.params), *gather_terms(job, job.params))
    staged = tuple(host_terms(job, job.params, headroom.ranks))
    loading = tuple(loading_terms(job, job.params, headroom.ranks))
    needs = [
        _need(MemoryPlace.GPU, MemoryPhase.TRAINING, (*training, *activations), headroom, has_shape=batch is not None),
        _need(MemoryPlace.GPU, MemoryPhase.SAVE, saving, headroom),
        *([_need(MemoryPlace.HOST, MemoryPhase.SAVE, staged, headroom)] if staged else []),
        _need(MemoryPlace.HOST, MemoryPhase.LOADING, loading, headroom),
    ]
    verdicts = (need.verdict for need in needs if need.usual_bytes)  # an estimate decides nothing
    return Fit(max(verdicts, key=RANK.__getitem__), tuple(needs))


def state_terms(job: Job, params: ParamCount) -> Iterator[MemoryTerm]:
    """Yield the memory that each GPU always needs for weights, optimizer states and the fp32 copy of the weights."""
    trained, weight = trained_of(job, params), WEIGHT_BYTES[job.dtype]
    split = job.world_size if job.strategy in DIVIDES_WEIGHTS else 1
    how = f"{job.dtype.value}{_divided(split)}"
    if job.lora_share is None:
        yield _term("weights", params.total, weight, split, how)
    else:
        share, in_part = _share(params.total, split), _share(trained, split)
        least = in_part * weight + (share - in_part) * QUANTIZED_BITS // 8
        yield MemoryTerm("weights", least, Certainty.CERTAIN, f"the frozen ones in 4 bits{_divided(split)}")
        more = share * weight - least
        yield MemoryTerm("frozen weights in full", more, Certainty.USUAL, f"{how}; none if quantized to 4 bits")
    split = 1 if job.strategy is Strategy.DDP else job.world_size
    whole, values = MOMENT_BYTES[job.optimizer], OWN_TYPE_MOMENTS.get(job.optimizer)
    # torch's optimizers keep moments of the weights' type, DeepSpeed's always fp32 ones.
    certain = whole if values is None or job.strategy in DEEPSPEED else min(whole, values * weight)
    yield _term("optimizer states", trained, certain, split, f"{job.optimizer.value}{_divided(split)}")
    master = MASTER_BYTES[job.dtype]
    if not master:
        return
    surely = Certainty.CERTAIN if job.strategy in DEEPSPEED else Certainty.USUAL
    reason = f"DeepSpeed's{_divided(split)}" if job.strategy in DEEPSPEED else NOT_PURE
    yield _term("fp32 copy of the weights", trained, master, split, reason, surely)
    if whole > certain:
        yield _term("optimizer states in fp32", trained, whole - certain, split, NOT_PURE, Certainty.USUAL)  # fmt: skip


def gradient_terms(job: Job, params: ParamCount) -> Iterator[MemoryTerm]:
    """Yield the additional memory that each GPU needs at the end of a backward pass."""
    trained, weight = trained_of(job, params), WEIGHT_BYTES[job.dtype]
    split = job.world_size if job.strategy in DIVIDES_GRADIENTS else 1
    # ZeRO 1 and 2 keep them until they are divided.
    surely = Certainty.CERTAIN if job.strategy in (Strategy.ZERO1, Strategy.ZERO2) else Certainty.USUAL
    reason = f"{job.dtype.value}{_divided(split)}" + ("" if surely is Certainty.CERTAIN else f"; {NOT_KEPT}")
    yield _term("gradients", trained, weight, split, reason, surely)
    if job.strategy is Strategy.DDP and job.world_size > 1:
        yield _term("DDP's buckets", trained, weight, 1, "none with gradient_as_bucket_view",
                    Certainty.USUAL)  # fmt: skip


def gather_terms(job: Job, params: ParamCount) -> Iterator[MemoryTerm]:
    """Yield the GPU memory that a rank may need to gather a full checkpoint."""
    if job.save is Save.FULL and job.strategy in DIVIDES_WEIGHTS and job.world_size > 1:
        missing = params.total - _share(params.total, job.world_size)
        yield _term("gather of the full weights", missing, WEIGHT_BYTES[job.dtype], 1,
                    "next to none with cpu_offload", Certainty.ESTIMATE)  # fmt: skip


def loading_terms(job: Job, params: ParamCount, ranks: int) -> Iterator[MemoryTerm]:
    """Yield the host memory that is needed if each rank on this host loads all weights at the start."""
    copies = max(1, ranks)
    reason = f"if each of {copies} ranks loads all of them" if copies > 1 else "loaded before they move to the GPU"
    yield _term("weights", copies * params.total, WEIGHT_BYTES[job.dtype], 1, reason, Certainty.ESTIMATE)


def host_terms(job: Job, params: ParamCount, ranks: int) -> Iterator[MemoryTerm]:
    """Yield the memory that a checkpoint needs on this host, which is assumed to be the host of rank 0."""
    trained, weight = trained_of(job, params), WEIGHT_BYTES[job.dtype]
    states = MOMENT_BYTES[job.optimizer] + MASTER_BYTES[job.dtype]
    divides = job.strategy in DIVIDES_WEIGHTS
    if job.save is Save.FULL and divides and job.world_size > 1:
        saved = params.total if job.lora_share is None else trained  # of LoRA the rest does not change
        yield _term("weights on rank 0", saved, weight, 1, "gathered before they are written")
        yield _term("optimizer states on rank 0", trained, states, 1, "saved too, to resume from", Certainty.USUAL)
    if job.save is Save.ASYNC:
        split = job.world_size if divides else 1
        copies = max(1, ranks) if divides else 1
        saved = params.total if job.lora_share is None else trained
        reason = f"each of {copies} ranks copies its part" if divides else "copied before training goes on"
        yield _term("copy of the weights", copies * _share(saved, split), weight, 1, reason)
        copies = 1 if job.strategy is Strategy.DDP else max(1, ranks)
        split = 1 if job.strategy is Strategy.DDP else job.world_size
        yield _term("copy of the optimizer states", copies * _share(trained, split), states, 1,
                    "saved too, to resume from", Certainty.USUAL)  # fmt: skip


def activation_terms(job: Job, batch: Batch) -> Iterator[MemoryTerm]:
    """Yield an estimate of the memory for activations and logits, after Korthikanti et al. 2022.

    The estimate assumes attention that stores no scores.
    """
    # The formula is the one of Korthikanti et al. 2022. For each token, a block stores 7 times the hidden size and 4
    # times the intermediate size.
    shape, tokens = batch.shape, batch.seq_len * batch.micro_batch
    width = WEIGHT_BYTES[job.dtype]
    block = tokens * width * (7 * shape.hidden_size + 4 * shape.intermediate_size)
    inputs = tokens * width * shape.hidden_size * shape.layers
    yield MemoryTerm("activations, checkpointed", block + inputs, Certainty.ESTIMATE,
                     f"{batch.micro_batch} x {batch.seq_len} tokens")  # fmt: skip
    logits = tokens * shape.vocab_size * (width + 8)
    yield MemoryTerm("logits", logits, Certainty.ESTIMATE,
                     f"vocabulary of {shape.vocab_size}")  # fmt: skip
    yield MemoryTerm("activations, all blocks", max(0, block * (shape.layers - 1) - inputs),
                     Certainty.WITHOUT_CHECKPOINTING, "what checkpointing saves")  # fmt: skip


def is_thinkable(batch: Batch) -> bool:
    """Return whether a future GPU could hold the activations of the batch."""
    return sum(term.needed_bytes for term in activation_terms(Job(dtype=Dtype.FP32), batch)) <= MOST_BYTES


def trained_of(job: Job, params: ParamCount) -> int:
    """Return the number of parameters that the job trains, rounded down."""
    return params.total if job.lora_share is None else int(params.total * job.lora_share)


def _term(
    name: str, count: int, each_bytes: int, split: int, reason: str, certainty: Certainty = Certainty.CERTAIN
) -> MemoryTerm:
    return MemoryTerm(name, _share(count, split) * each_bytes, certainty, reason)


def _share(count: int, split: int) -> int:
    """Return the size of the largest part if `count` is split into `split` nearly equal parts."""
    return -(-count // max(1, split))


def _divided(split: int) -> str:
    return f", one of {split} parts" if split > 1 else ""


def _need(
    place: MemoryPlace, phase: MemoryPhase, terms: tuple[MemoryTerm, ...], room: Headroom, *, has_shape: bool = True
) -> MemoryNeed:
    order = list(Certainty)
    sums = [sum(t.needed_bytes for t in terms if order.index(t.certainty) <= i) for i in range(len(order))]
    on_gpu = place is MemoryPlace.GPU
    available = room.gpu_free_bytes if on_gpu else room.host_bytes
    if isinstance(available, Gap):
        verdict = FitVerdict.UNKNOWN
    elif sums[0] > available:
        verdict = FitVerdict.CANNOT_FIT
    else:
        verdict = FitVerdict.NOT_AS_USUAL if sums[1] > available else FitVerdict.MAY_FIT
    return MemoryNeed(
        place=place,
        phase=phase,
        terms=tuple(term for term in terms if term.needed_bytes),
        at_least_bytes=sums[0],
        usual_bytes=sums[1],
        estimate_bytes=sums[2] if has_shape else NO_SHAPE,
        without_checkpointing_bytes=sums[3] if has_shape else NO_SHAPE,
        available_bytes=available,
        available_source=room.gpu_source if on_gpu else room.host_source,
        verdict=verdict,
    )


def headroom_of(node: NodeFacts, gpus: Sequence[int], ranks: int) -> Headroom:
    """Return the free memory of this host, and of the GPUs with the NVML indices `gpus`.

    If `gpus` is empty, all GPUs count.
    """
    gpu_free, gpu_source = _gpu_headroom(node, gpus)
    host, host_source = (node.system, "") if isinstance(node.system, Gap) else _host_headroom(node.system)
    return Headroom(ranks, gpu_free, gpu_source, host, host_source)


def _gpu_headroom(node: NodeFacts, gpus: Sequence[int]) -> tuple[int | Gap, str]:
    """Return the free memory in bytes of the GPU with the least free memory, and the source of this value.

    Ranks divide their work evenly, so the fullest GPU limits the job.
    """
    if isinstance(node.gpus, Gap):
        return node.gpus, ""
    chosen = [gpu for gpu in node.gpus if not gpus or gpu.nvml_index in gpus]
    free = [(gpu.memory_free_bytes, gpu.nvml_index) for gpu in chosen if isinstance(gpu.memory_free_bytes, int)]
    if len(free) < len(chosen) or not free:
        return next((gpu.memory_free_bytes for gpu in chosen if isinstance(gpu.memory_free_bytes, Gap)), NO_GPU), ""
    least, index = min(free)
    return least, f"free on GPU {index}" + (", the fullest" if len(free) > 1 else "")


def _host_headroom(system: SystemFacts) -> tuple[int | Gap, str]:
    available, limit = system.memory_available_bytes, system.cgroup_memory_limit_bytes
    if isinstance(available, Gap):
        return available, ""
    if isinstance(limit, int) and limit < available:
        return limit, "the cgroup's limit"
    return available, "MemAvailable"
