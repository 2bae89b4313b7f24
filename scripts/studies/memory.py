"""Hold the memory that preflight computes against published peaks and published failures, in GiB for each GPU.

A peak lies between "at least" and the largest sum of the page; a job that ran is never refused. What preflight has no
option for (offloading, paged states) is a row of its own: it is not known, and only "cannot fit" may not be said of it
where the job is described as far as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from preflight.model.fit import Batch, FitVerdict, Headroom, ModelShape
from preflight.model.job import Dtype, Job, Optimizer, ParamCount, Save, Strategy
from preflight.timeout.memory import will_it_fit

GIB, BILLION = 1 << 30, 10**9
CONTEXT_GIB = 2.5  # CUDA's context, NCCL's buffers and the allocator's reserve, which preflight's sums leave out


@dataclass(frozen=True, slots=True)
class Peak:
    """A job, the memory of its GPU, and the published peak; None where only is known that it ran."""

    name: str
    job: Job
    card_gib: float
    peak_gib: float | None
    batch: Batch | None = None


def llama(billions: float, ranks: int = 1, strategy: Strategy = Strategy.DDP, **options: object) -> Job:
    """Return a job without a full checkpoint."""
    count = int(billions * BILLION)
    return Job(ParamCount(count, count), strategy=strategy, save=Save.SHARDED, world_size=ranks, **options)  # type: ignore[arg-type]


L7, L8 = ModelShape(4096, 32, 11008, 32000), ModelShape(4096, 32, 14336, 128256)
L70, L405 = ModelShape(8192, 80, 28672, 128256), ModelShape(16384, 126, 53248, 128256)
FSDP, ZERO1, ZERO2, ZERO3 = Strategy.FSDP, Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3
GB = BILLION / GIB
PEAKS = (
    # ZeRO, figure 1: 7.5B on 64 GPUs, model states only.
    Peak("ZeRO paper 7.5B, no ZeRO", llama(7.5, 64), 160, 120 * GB),
    Peak("ZeRO paper 7.5B, stage 1", llama(7.5, 64, ZERO1), 80, 31.4 * GB),
    Peak("ZeRO paper 7.5B, stage 2", llama(7.5, 64, ZERO2), 80, 16.6 * GB),
    Peak("ZeRO paper 7.5B, stage 3", llama(7.5, 64, ZERO3), 80, 1.9 * GB),
    # torchtune's README, batch 2 x 2048. Its full fine-tuning keeps paged states on the host and no gradients.
    Peak("torchtune 8B full, 4090", llama(8.03, optimizer=Optimizer.SGD), 24, 18.9, Batch(L8, 2048, 2)),
    Peak("torchtune 8B full, A6000", llama(8.03, optimizer=Optimizer.SGD), 48, 37.4, Batch(L8, 2048, 2)),
    Peak("torchtune 8B LoRA, 4090", llama(8.03, lora_share=0.005), 24, 16.2, Batch(L8, 2048, 2)),
    Peak("torchtune 8B LoRA, A6000", llama(8.03, lora_share=0.005), 48, 30.3, Batch(L8, 2048, 2)),
    Peak("torchtune 8B QLoRA, 4090", llama(8.03, lora_share=0.005), 24, 7.4, Batch(L8, 2048, 2)),
    Peak("torchtune 70B LoRA, 8 x A100", llama(70.6, 8, FSDP, lora_share=0.005), 80, 27.6, Batch(L70, 2048, 2)),
    Peak("torchtune 405B QLoRA, 8 x A100", llama(405, 8, FSDP, lora_share=0.005), 80, 44.8 * GB, Batch(L405, 2048, 2)),
    # torchtitan's tables; fp32 weights are cast for the forward pass.
    Peak("torchtitan 8B, batch 2 x 8192, selective", llama(8.03, 8, FSDP), 95, 82.4, Batch(L8, 8192, 2)),
    Peak("torchtitan 8B, batch 1 x 8192, selective", llama(8.03, 8, FSDP), 95, 47.65, Batch(L8, 8192, 1)),
    Peak("torchtitan 70B, 64 x A100, full checkpointing", llama(70.6, 64, FSDP), 80, None, Batch(L70, 8192, 1)),
    # Known to run.
    Peak("LOMO 7B, RTX 3090", llama(6.74, optimizer=Optimizer.SGD), 24, None),
    Peak("QLoRA 65B, one 48 GB GPU", llama(65.2, lora_share=0.005), 48, None),
    Peak("13B full, FSDP, 8 x 40 GB", llama(13.0, 8, FSDP), 40, None),
    Peak("7B full, ZeRO-3, 8 x 24 GB", llama(6.74, 8, ZERO3), 24, None),
    Peak("7B full in fp32, FSDP, 8 x 24 GB", llama(6.74, 8, FSDP, dtype=Dtype.FP32), 24, None),
)
NOT_AS_USUAL = (  # what needs offloading in the usual mixed precision
    Peak("70B full, FSDP, 8 x 80 GB", llama(70.6, 8, FSDP), 80, None),
    Peak("405B full, FSDP, 64 x 80 GB", llama(405, 64, FSDP), 80, None),
    Peak("7B full, one 80 GB GPU", llama(6.74), 80, None),
)


def study(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield each case, its sums, its verdict, and whether they suit what is published."""
    del is_small  # it takes milliseconds
    yield f"{'case':<48}{'published':>10}{'at least':>10}{'largest':>9}  verdict", True
    for each in (*PEAKS, *NOT_AS_USUAL):
        fit = will_it_fit(each.job, Headroom(8, int(each.card_gib * GIB), "", 2000 * GIB, ""), each.batch)
        need = fit.needs[0]
        sums = [need.usual_bytes, need.estimate_bytes, need.without_checkpointing_bytes]
        most = max(size for size in sums if isinstance(size, int)) / GIB
        least = need.at_least_bytes / GIB
        is_inside = each.peak_gib is None or least <= each.peak_gib * 1.003 <= most + CONTEXT_GIB
        is_right = need.verdict is FitVerdict.NOT_AS_USUAL if each in NOT_AS_USUAL else True
        published = "ran" if each.peak_gib is None else f"{each.peak_gib:.1f}"
        row = f"{each.name:<48}{published:>10}{least:>10.1f}{most:>9.1f}  {need.verdict.value}"
        yield row, is_inside and is_right and need.verdict is not FitVerdict.CANNOT_FIT
