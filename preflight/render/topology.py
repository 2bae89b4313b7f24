"""How GPUs and adapters reach each other, as `nvidia-smi topo -m` shows it, with the NUMA nodes as blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from preflight.model.facts import Gap, HcaPort, Nic, NodeFacts
from preflight.model.units import rate_text, size_text
from preflight.plan.gpu_advice import ONE, Crossing, GpuSetAdvice
from preflight.render.text import INDENT, Style, clean, heading, ranges, shorten, table, width_of, wrap

if TYPE_CHECKING:
    from preflight.model.expected import Expected

UNKNOWN = "?"
SELF = "X"
WORDS = (
    "NV# = so many NVLinks; PIX = one PCIe switch or bridge; PXB = several; PHB = a host bridge; "
    "NODE = host bridges of one NUMA node; SYS = between NUMA nodes"
)
BAR, LINE, CROSS = "│", "─", "┼"
NIC_HEADERS = ("NIC", "kind", "port", "state", "Gbit/s", "NUMA", "netif", "firmware", "bdf")
MOST_AFFINITY = 24
ANY_WIDTH = 10_000

Cells = Mapping[tuple[str, str], str]
Blocks = Sequence[Sequence[str]]


def topology_sections(node: NodeFacts, style: Style) -> list[str]:
    """Return the matrix of the GPUs, the table of the adapters, and the matrix of both."""
    return [*gpu_matrix(node, style), *nic_table(node, style), *nic_matrix(node, style)]


def gpu_matrix(node: NodeFacts, style: Style) -> list[str]:
    """Return how the GPUs reach each other; nothing where there are fewer than two."""
    if isinstance(node.gpu_paths, Gap):
        return []
    cells: dict[tuple[str, str], str] = {}
    for path in node.gpu_paths:
        a, b = f"GPU{path.a}", f"GPU{path.b}"
        cells[a, b] = _word(path.level)
        cells.setdefault((b, a), cells[a, b])
    blocks = numa_blocks(node, sorted({gpu for path in node.gpu_paths for gpu in (path.a, path.b)}))
    if not cells:
        return []
    notes = _seat_notes(node)
    lines = [*heading("Paths between the GPUs", style), *matrix(blocks, blocks, cells, notes, style)]
    return [*lines, *wrap(WORDS, style.width, INDENT)]


def nic_matrix(node: NodeFacts, style: Style) -> list[str]:
    """Return how the adapters reach the GPUs."""
    if isinstance(node.nic_paths, Gap) or not node.nic_paths:
        return []
    cells = {(clean(path.nic), f"GPU{path.gpu}"): _word(path.level) for path in node.nic_paths}
    columns = numa_blocks(node, sorted({path.gpu for path in node.nic_paths}))
    rows = list(dict.fromkeys(clean(path.nic) for path in node.nic_paths))
    return [*heading("Paths from the NICs to the GPUs", style), *matrix([rows], columns, cells, {}, style)]


def numa_blocks(node: NodeFacts, gpus: Sequence[int]) -> list[list[str]]:
    """Return the GPUs in blocks of one NUMA node each, in the order in which the nodes first occur."""
    where = {gpu.nvml_index: gpu.numa_node for gpu in node.gpus} if isinstance(node.gpus, tuple) else {}
    if isinstance(node.gpus, Gap) and isinstance(node.nvidia_pci, tuple):
        where = {place: device.numa_node for place, device in enumerate(node.nvidia_pci)}
    blocks: dict[object, list[str]] = {}
    for gpu in gpus:
        numa = where.get(gpu)
        blocks.setdefault(None if isinstance(numa, Gap) else numa, []).append(f"GPU{gpu}")
    return list(blocks.values())


def matrix(rows: Blocks, columns: Blocks, cells: Cells, notes: Mapping[str, str], style: Style) -> list[str]:
    """Return a matrix with bars between the blocks, in several parts where the terminal is narrow."""
    label = max(width_of(name) for block in rows for name in block)
    cell = 1 + max([4, *(width_of(name) for block in columns for name in block), *(map(width_of, cells.values()))])
    room = max(1, (style.width - len(INDENT) - label) // (cell + 1))
    flat = [(name, i) for i, block in enumerate(columns) for name in block]
    lines: list[str] = []
    for start in range(0, len(flat), room):
        part = flat[start : start + room]
        is_last = start + room >= len(flat)
        lines += _part(rows, part, cells, notes if is_last else {}, (label, cell), style)
    return lines


def _part(
    rows: Blocks, part: Sequence[tuple[str, int]], cells: Cells, notes: Mapping[str, str],
    widths: tuple[int, int], style: Style,
) -> list[str]:  # fmt: skip
    label, cell = widths
    head = INDENT + " " * label + _row([name for name, _ in part], part, cell)
    lines = [head + (f"  {notes['']}" if notes else "")]
    for number, block in enumerate(rows):
        if number:
            rule = "".join((LINE + CROSS if new else "") + LINE * cell for _, new in _with_bars(part))
            lines.append(INDENT + LINE * label + rule)
        for name in block:
            values = [SELF if name == column else cells.get((name, column), UNKNOWN) for column, _ in part]
            note = f"  {notes[name]}" if notes.get(name) else ""
            lines.append(INDENT + name + " " * (label - width_of(name)) + _row(values, part, cell) + note)
    return [shorten(line.rstrip(), style.width) for line in lines]


def _row(values: Sequence[str], part: Sequence[tuple[str, int]], cell: int) -> str:
    pieces = zip(values, _with_bars(part), strict=True)
    return "".join((f" {BAR}" if new else "") + " " * (cell - width_of(value)) + value for value, (_, new) in pieces)


def _with_bars(part: Sequence[tuple[str, int]]) -> list[tuple[str, bool]]:
    """Return each column and whether a new block begins with it."""
    return [(name, i > 0 and part[i - 1][1] != block) for i, (name, block) in enumerate(part)]


def _seat_notes(node: NodeFacts) -> dict[str, str]:
    """Return the NUMA node and the CPUs by GPU, and their title by ""."""
    if isinstance(node.gpus, Gap):
        return {}
    rows = {"": "NUMA  CPUs"}
    for gpu in node.gpus:
        numa = UNKNOWN if isinstance(gpu.numa_node, Gap) else str(gpu.numa_node)
        cpus = UNKNOWN if isinstance(gpu.cpu_affinity, Gap) else shorten(ranges(gpu.cpu_affinity), MOST_AFFINITY)
        rows[f"GPU{gpu.nvml_index}"] = f"{numa:>4}  {cpus}"
    return rows


def nic_table(node: NodeFacts, style: Style) -> list[str]:
    """Return the adapters with their ports."""
    if isinstance(node.nics, Gap):
        return []
    if not node.nics:
        return ["", "NICs: none with RDMA"]
    ports = () if isinstance(node.hca_ports, Gap) else node.hca_ports
    rows = [row for nic in node.nics for row in nic_rows(nic, [port for port in ports if port.hca == nic.name])]
    if all(word == UNKNOWN for row in rows for word in row[1:]):
        return []  # a pasted topology: the matrix names them
    used = [i for i in range(len(NIC_HEADERS)) if i == 0 or any(row[i] != UNKNOWN for row in rows)]
    lines: list[str] = []
    for left_out in ((), (7,), (7, 8)):  # firmware and bdf where there is room
        kept = [i for i in used if i not in left_out]
        right = [kept.index(i) for i in (2, 4, 5) if i in kept]
        shown = [[row[i] for i in kept] for row in rows]
        lines = table([NIC_HEADERS[i] for i in kept], shown, ANY_WIDTH, right=right)
        if max(map(width_of, lines)) <= style.width:
            break
    return [*heading("NICs", style), *(shorten(line, style.width) for line in lines)]


def nic_rows(nic: Nic, ports: Sequence[HcaPort]) -> list[list[str]]:
    """Return a row of cleaned cells below NIC_HEADERS per port of the adapter."""
    kind = UNKNOWN if isinstance(nic.kind, Gap) else nic.kind.value
    netifs = UNKNOWN if isinstance(nic.netifs, Gap) else clean(" ".join(nic.netifs)) or "-"
    rest = [_word(nic.numa_node), shorten(netifs, 15), _word(nic.firmware), _word(nic.bdf)]
    name = shorten(clean(nic.name), 16)
    if not ports:
        return [[name, kind, UNKNOWN, UNKNOWN, UNKNOWN, *rest]]
    return [[name, kind, str(port.port), _state(port), _rate(port), *rest] for port in ports]


def _state(port: HcaPort) -> str:
    """Return the logical state, with the physical one where it is not the obvious one."""
    state = UNKNOWN if isinstance(port.state, Gap) else port.state.value
    if isinstance(port.phys_state, Gap) or (state, port.phys_state.value) in (("ACTIVE", "LinkUp"),):
        return state
    return f"{state}, {port.phys_state.value}"


def _rate(port: HcaPort) -> str:
    return UNKNOWN if isinstance(port.rate_gbit_s, Gap) else f"{port.rate_gbit_s:g}"


def _word(value: object) -> str:
    return UNKNOWN if isinstance(value, Gap) else clean(str(value))


def expected_section(expected: Expected | Gap, style: Style) -> list[str]:
    """Return what the chosen GPUs' links should carry, and how that was worked out."""
    lines = heading("Expected speed, from the links that are there", style)
    if isinstance(expected, Gap):
        return [*lines, *wrap(f"not known: {clean(expected.reason)}", style.width, INDENT)]
    span = f"{rate_text(expected.low_gb_s)} to {rate_text(expected.high_gb_s)} busbw"
    lines += wrap(f"{expected.what} of {size_text(expected.size_bytes)}: {span}", style.width, INDENT)
    return [*lines, *wrap(clean(expected.formula), style.width, INDENT, INDENT * 2)]


def gpu_set_section(advice: GpuSetAdvice, style: Style) -> list[str]:
    """Return what the chosen GPUs cross, and the better set."""
    gpus = ",".join(map(str, advice.gpus))
    lines = heading(f"GPU set {gpus}", style)
    for crossing in advice.crossings:
        lines += wrap(f"crosses {_crossing(crossing)}", style.width, INDENT, INDENT * 2)
    if advice.within:
        lines += wrap(f"stays within {' and '.join(ONE[each] for each in advice.within)}", style.width, INDENT)
    if not advice.crossings:
        lines += wrap("crosses nothing that is known", style.width, INDENT)
    if len(advice.gpus) > 1:
        lines += wrap(f"slowest path in the set: {advice.worst or UNKNOWN}", style.width, INDENT)
    if advice.better:
        better = ",".join(map(str, advice.better))
        lines += wrap(f"better: --gpus {better}, since {advice.reason}", style.width, INDENT, INDENT * 2)
    elif advice.crossings:
        lines += wrap(f"no set of {len(advice.gpus)} free GPUs sits nearer together", style.width, INDENT)
    return lines


def _crossing(crossing: Crossing) -> str:
    sides = (f"{side.name} with {','.join(map(str, side.gpus))}" for side in crossing.sides)
    return f"{crossing.boundary.value}: {'; '.join(sides)}"
