"""The sections on GPUs: the models, and a table of the values that differ between GPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from preflight.model.facts import Gap, Gpu, GpuP2p, NodeFacts
from preflight.model.gpu import ComputeMode, Mode, NvLink, PcieLink
from preflight.model.units import size_text
from preflight.show.document import Block, Heading, Items, Table, Text, note, right, section, table
from preflight.show.text import fact_text, ranges

NONE = "-"
BELOW = "below"  # what is odd about a GPU is too long for its row
MOST_XIDS = 5
NORMAL = frozenset({"idle", "applications_clocks", "sw_power_cap", "sync_boost", "display_clocks"})
HEADERS = (right("GPU"), "bdf", right("NUMA"), right("free"), "PCIe", "NVLinks", right("°C"), "state")


def gpu_section(node: NodeFacts) -> list[Block]:
    """Return the section on GPUs, without columns that have only unknown values."""
    if isinstance(node.gpus, Gap):
        return []
    if not node.gpus:
        return [Text(""), Text("GPUs: none")]
    rows = gpu_table(node.gpus)
    models = gpu_models(node.gpus)
    in_matrix = _is_in_matrix(node, rows)
    if not models and in_matrix:
        return []
    blocks: list[Block] = [Heading("GPUs"), Items(models), *([] if in_matrix else [rows])]
    odd = [(f"GPU {gpu.nvml_index}", ", ".join(gpu_oddities(gpu))) for gpu in node.gpus if gpu_oddities(gpu)]
    access = "" if isinstance(node.gpu_p2p, Gap) else _access(node.gpu_p2p)
    return [*blocks, Items(odd, indent=4), *([note(access)] if access else [])]


def _is_in_matrix(node: NodeFacts, rows: Table) -> bool:
    """Return whether the matrix of GPU paths already shows all columns of the GPU table."""
    has_matrix = isinstance(node.gpu_paths, tuple) and bool(node.gpu_paths)
    return has_matrix and {column.title for column in rows.columns} <= {"GPU", "NUMA"}


def xid_section(node: NodeFacts) -> list[Block]:
    """Return the section with the newest Xid errors in the kernel log, or [] if the log has no Xid errors."""
    if isinstance(node.xid_lines, Gap):
        return []
    older = len(node.xid_lines) - MOST_XIDS
    notes = [note(f"{older} older lines are not shown; the newest:")] if older > 0 else []
    return section("Xid errors in the kernel log", *notes, *map(note, node.xid_lines[-MOST_XIDS:]))


def gpu_models(gpus: tuple[Gpu, ...]) -> list[tuple[str, str]]:
    """Return pairs (GPU numbers, model), such as ("GPU 0-7", model).

    GPUs of unknown models are left out.
    """
    models: dict[str, list[int]] = {}
    for gpu in gpus:
        models.setdefault(_model(gpu), []).append(gpu.nvml_index)
    return [(f"GPU {ranges(indices)}", model) for model, indices in models.items() if model]


def _model(gpu: Gpu) -> str:
    words = [
        fact_text(gpu.name, gap=""),
        fact_text(gpu.compute_capability, "compute capability {}".format, gap=""),
        fact_text(gpu.memory_total_bytes, size_text, gap=""),
        fact_text(gpu.bar1_total_bytes, lambda size_bytes: f"BAR1 {size_text(size_bytes)}", gap=""),
        fact_text(gpu.power_limit_w, "{:g} W".format, gap=""),
        fact_text(gpu.ecc_mode, lambda mode: f"ECC {'on' if mode is Mode.ENABLED else 'off'}", gap=""),
    ]
    return ", ".join(word for word in words if word)


def gpu_table(gpus: tuple[Gpu, ...], *, odd_below: bool = True) -> Table:
    """Return a table with one row per GPU.

    If `odd_below` is False, each row also has the GPU's unusual values.
    """
    return replace(table(HEADERS, [_row(gpu, odd_below=odd_below) for gpu in gpus]).known(), caption="GPUs")


def _row(gpu: Gpu, *, odd_below: bool) -> list[str]:
    odd = ", ".join(gpu_oddities(gpu))
    return [
        str(gpu.nvml_index),
        fact_text(gpu.bdf),
        fact_text(gpu.numa_node),
        fact_text(gpu.memory_free_bytes, size_text),
        fact_text(gpu.pcie, _pcie),
        fact_text(gpu.nvlinks, _links),
        fact_text(gpu.temperature_c),
        (BELOW if odd_below else odd) if odd else fact_text(gpu.processes, lambda _: "free"),
    ]


def _pcie(link: PcieLink) -> str:
    """Return a PCIe link as `x16 gen5`: the current width and the highest generation.

    The current generation is not used, because it falls while a link is idle.
    """
    width = (
        fact_text(link.width)
        if link.width == link.width_max
        else f"{fact_text(link.width)} of x{fact_text(link.width_max)}"
    )
    return f"x{width} gen{fact_text(link.gen_max)}"


def _links(links: tuple[NvLink, ...]) -> str:
    """Return a GPU's NVLinks as text, such as `18 x 4.0` or `17 of 18 x 4.0`.

    The text has the number of active links, the number of all links if some are not active, and the NVLink version. If
    the GPU has no NVLinks, the text is `-`.
    """
    active = [link for link in links if link.is_active is True]
    generations = {fact_text(link.generation) for link in active}
    count = str(len(active)) if len(active) == len(links) else f"{len(active)} of {len(links)}"
    return f"{count} x {'/'.join(sorted(generations))}" if generations else (count if links else NONE)


def gpu_oddities(gpu: Gpu) -> list[str]:
    """Return the unusual values of a GPU, such as `MIG` or `2 processes`."""
    words = ["MIG"] if gpu.mig_mode is Mode.ENABLED else []
    if isinstance(gpu.compute_mode, ComputeMode) and gpu.compute_mode is not ComputeMode.DEFAULT:
        words.append(gpu.compute_mode.value.replace("_", " "))
    reasons = () if isinstance(gpu.throttle_reasons, Gap) else gpu.throttle_reasons
    words += [reason.replace("_", " ") for reason in reasons if reason not in NORMAL]
    if isinstance(gpu.processes, tuple) and gpu.processes:
        words.append(f"{len(gpu.processes)} process{'es' * (len(gpu.processes) > 1)}")
    if isinstance(gpu.utilization_percent, int) and gpu.utilization_percent:
        words.append(f"{gpu.utilization_percent}% busy")
    return words


def _access(pairs_of_gpus: tuple[GpuP2p, ...]) -> str:
    """Return one sentence on the peer access that the driver reports; "" if nothing was read."""
    read = Counter(pair.read for pair in pairs_of_gpus if not isinstance(pair.read, Gap))
    said = ", ".join(f"{status.value.replace('_', ' ')} for {count}" for status, count in read.most_common())
    if len(read) == 1:
        said = f"{next(iter(read)).value.replace('_', ' ')} for all pairs"
    return f"peer access (reported by the driver): {said}" if read else ""
