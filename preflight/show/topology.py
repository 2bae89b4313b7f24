"""The sections on the paths between GPUs and network adapters."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.facts import Gap, HcaPort, Nic, NodeFacts
from preflight.model.links import Expected
from preflight.model.units import rate_text, size_text
from preflight.search.gpus.gpu_set_advice import ONE, Crossing, GpuSetAdvice
from preflight.show.document import BLANK, Block, Column, Heading, Matrix, Table, Text, item, note, right, table
from preflight.show.text import UNKNOWN, clean, fact_text, ranges, shorten

WORDS = (
    "NV# = # NVLinks; PIX = one PCIe switch or bridge; PXB = several; PHB = a host bridge; "
    "NODE = host bridges of one NUMA node; SYS = between NUMA nodes"
)
NIC_HEADERS = (
    Column("NIC", limit=16), "kind", right("port"), "state", right("Gbit/s"), right("NUMA"), Column("netif", limit=15),
    Column("firmware", drop=2), Column("bdf", drop=1),
)  # fmt: skip
MOST_AFFINITY = 24


def topology_sections(node: NodeFacts) -> list[Block]:
    """Return the sections on the GPUs, the RDMA adapters, and the paths between GPUs and adapters."""
    return [*_gpu_matrix(node), *_nic_section(node), *_nic_matrix(node)]


def _gpu_matrix(node: NodeFacts) -> list[Block]:
    """Return the matrix of the paths between the GPUs, or [] if there are fewer than two GPUs."""
    if isinstance(node.gpu_paths, Gap) or not node.gpu_paths:
        return []
    cells: dict[tuple[str, str], str] = {}
    for path in node.gpu_paths:
        a, b = f"GPU{path.a}", f"GPU{path.b}"
        cells[a, b] = clean(fact_text(path.level))
        cells.setdefault((b, a), cells[a, b])
    gpus = numa_blocks(node, sorted({gpu for path in node.gpu_paths for gpu in (path.a, path.b)}))
    return [Heading("Paths between the GPUs"), Matrix(gpus, gpus, cells, _seat_notes(node)), note(WORDS)]


def _nic_matrix(node: NodeFacts) -> list[Block]:
    """Return the matrix of paths between adapters and GPUs."""
    if isinstance(node.nic_paths, Gap) or not node.nic_paths:
        return []
    cells = {(clean(path.nic), f"GPU{path.gpu}"): clean(fact_text(path.level)) for path in node.nic_paths}
    columns = numa_blocks(node, sorted({path.gpu for path in node.nic_paths}))
    rows = list(dict.fromkeys(clean(path.nic) for path in node.nic_paths))
    return [Heading("Paths from the NICs to the GPUs"), Matrix([rows], columns, cells, {})]


def numa_blocks(node: NodeFacts, gpus: Sequence[int]) -> list[list[str]]:
    """Return the names of the GPUs, such as `GPU0`, in one list per NUMA node."""
    where = {gpu.nvml_index: gpu.numa_node for gpu in node.gpus} if isinstance(node.gpus, tuple) else {}
    if isinstance(node.gpus, Gap) and isinstance(node.nvidia_pci, tuple):
        where = {place: device.numa_node for place, device in enumerate(node.nvidia_pci)}
    blocks: dict[object, list[str]] = {}
    for gpu in gpus:
        numa = where.get(gpu)
        blocks.setdefault(None if isinstance(numa, Gap) else numa, []).append(f"GPU{gpu}")
    return list(blocks.values())


def _seat_notes(node: NodeFacts) -> dict[str, str]:
    """Return the NUMA node and the CPUs of each GPU, as {GPU name: text}.

    The key "" has the title of the column.
    """
    if isinstance(node.gpus, Gap):
        return {}
    notes = {"": "NUMA  CPUs"}
    for gpu in node.gpus:
        cpus = shorten(fact_text(gpu.cpu_affinity, ranges), MOST_AFFINITY)
        notes[f"GPU{gpu.nvml_index}"] = f"{fact_text(gpu.numa_node):>4}  {cpus}"
    return notes


def _nic_section(node: NodeFacts) -> list[Block]:
    """Return the adapters with their ports."""
    if isinstance(node.nics, Gap):
        return []
    if not node.nics:
        return [BLANK, Text("NICs: none with RDMA")]
    rows = nic_table(node, node.nics)
    return [Heading("NICs"), rows] if rows.columns[1:] else []  # a pasted topology: the matrix names them


def nic_table(node: NodeFacts, nics: Sequence[Nic]) -> Table:
    """Return a table with a row for each port of the adapters `nics`, without columns that have no known value."""
    ports = () if isinstance(node.hca_ports, Gap) else node.hca_ports
    rows = [row for nic in nics for row in _nic_rows(nic, [port for port in ports if port.hca == nic.name])]
    return table(NIC_HEADERS, rows, "RDMA adapters").known()


def _nic_rows(nic: Nic, ports: Sequence[HcaPort]) -> list[list[str]]:
    kind = fact_text(nic.kind, lambda kind: kind.value)
    rest = [
        fact_text(nic.numa_node),
        fact_text(nic.netifs, " ".join) or "-",
        fact_text(nic.firmware),
        fact_text(nic.bdf),
    ]
    about = [[str(port.port), _state(port), fact_text(port.rate_gbit_s, "{:g}".format)] for port in ports]
    return [[nic.name, kind, *each, *rest] for each in about or [[UNKNOWN] * 3]]


def _state(port: HcaPort) -> str:
    """Return the logical state of a port, followed by the physical state.

    The physical state is left out if the port is ACTIVE and LinkUp, or if the physical state is unknown.
    """
    state = fact_text(port.state, lambda state: state.value)
    if isinstance(port.phys_state, Gap) or (state, port.phys_state.value) == ("ACTIVE", "LinkUp"):
        return state
    return f"{state}, {port.phys_state.value}"


def expected_section(expected: Expected | Gap) -> list[Block]:
    """Return the section on the bandwidth that the links of the chosen GPUs should reach.

    If `expected` is a Gap, the section says why the bandwidth is unknown.
    """
    heading = Heading("Expected speed, computed from the links")
    if isinstance(expected, Gap):
        return [heading, note(f"not known: {expected.reason}")]
    span = f"{rate_text(expected.low_gb_s)} to {rate_text(expected.high_gb_s)} busbw"
    return [heading, note(f"{expected.what} of {size_text(expected.size_bytes)}: {span}"), item(expected.formula)]


def gpu_set_section(advice: GpuSetAdvice) -> list[Block]:
    """Return the section on the chosen GPUs: the boundaries between the GPUs (such as NUMA nodes), and a better set."""
    blocks: list[Block] = [Heading(f"GPU set {','.join(map(str, advice.gpus))}")]
    blocks += [item(f"crosses {_crossing(crossing)}") for crossing in advice.crossings]
    if advice.within:
        blocks.append(note(f"stays within {' and '.join(ONE[each] for each in advice.within)}"))
    if not advice.crossings:
        blocks.append(note("crosses no known boundary"))
    if len(advice.gpus) > 1:
        blocks.append(note(f"slowest path in the set: {advice.worst or UNKNOWN}"))
    if advice.better:
        better = ",".join(map(str, advice.better))
        blocks.append(item(f"better: --gpus {better}, because {advice.reason}"))
    elif advice.crossings:
        blocks.append(note(f"no other set of {len(advice.gpus)} free GPUs has shorter paths"))
    return blocks


def _crossing(crossing: Crossing) -> str:
    sides = (
        f"{side.name} has GPU{'s' * (len(side.gpus) > 1)} {','.join(map(str, side.gpus))}" for side in crossing.sides
    )
    return f"{crossing.boundary.value}: {'; '.join(sides)}"
