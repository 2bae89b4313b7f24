"""Reduce a report to the hardware, settings and speeds that are compared within a fleet.

A missing or invalid part of a report only removes one metric.
"""
# The module reads the JSON directly, because a fleet may have ten thousand reports.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.trial import DEFAULT
from preflight.model.units import size_text

Json = dict[str, Any]
LINK_ERRORS = ("replay_errors", "recovery_errors", "crc_errors")
GPU_SETTINGS = {
    "ECC": "ecc_mode", "MIG": "mig_mode", "persistence": "persistence_mode", "power limit W": "power_limit_w",
}  # fmt: skip
UNREAD = -1.0
GIB = 1 << 30
MOST_SIZE = 1 << 60
MOST_REASONS, MOST_REASON = 8, 400
UNKNOWN_WORDS = ("unknown", "node unknown")  # before the reason in a headline
SIGNALS = 128  # exit codes from here on are signals


@dataclass(frozen=True, slots=True)
class NodeDigest:
    """The data of one node in one report, for comparison with other nodes.

    Equal nodes should have equal `settings` and similar `metrics`.
    """

    path: str
    host: str
    created_at: str
    verdict: str
    node_verdict: str  # "" without --accept
    kind: tuple[tuple[str, str], ...]  # nodes of the same kind are compared
    settings: dict[str, str]
    metrics: dict[str, float]
    reasons: tuple[str, ...]  # FAIL findings with their problem, else the report's own sentence
    is_simulated: bool
    is_interrupted: bool  # a signal ended the run, so the report is incomplete
    is_shadow: bool  # the run had --shadow, so its verdict drains no node
    checks: tuple[tuple[str, str], ...]  # each check, and how it ended


def digest(path: str, document: object) -> tuple[NodeDigest, ...]:
    """Return one digest for each node of the report `document`. `path` is the report's file.

    Raise MalformedInput if `document` is not a report.
    """
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list) or "verdict" not in document:
        raise MalformedInput(f"{path}: not a report of `preflight check`: `nodes` or `verdict` is missing")
    nodes = [node for node in document["nodes"] if isinstance(node, dict)]
    if not nodes:
        raise MalformedInput(f"{path}: a report without a node")
    return tuple(_of_node(path, document, node, solo=len(nodes) == 1) for node in nodes)


def _of_node(path: str, report: Json, node: Json, *, solo: bool) -> NodeDigest:
    gpus = _records(node.get("gpus"))
    metrics = dict(_gpu_metrics(gpus))
    if solo:  # a run of several nodes does not show any node's own speed
        metrics.update(_speeds(report))
        metrics.update(_below_nccl(report))
    return NodeDigest(
        path=path,
        host=str(node.get("host") or path),
        created_at=str(report.get("created_at") or ""),
        verdict=str(report.get("verdict")),
        node_verdict=str(report.get("node_verdict") or ""),
        kind=tuple(_kind(report, node, gpus)),
        settings=dict(_settings(node, gpus)),
        metrics=metrics,
        reasons=tuple(_reasons(report)),
        is_simulated=bool(report.get("simulated")),
        is_interrupted=_number(report.get("exit_code")) >= SIGNALS,
        is_shadow=bool(report.get("shadow")),
        checks=tuple(
            (intern(str(e.get("check"))), intern(str(e.get("outcome")))) for e in _records(report.get("checks"))
        ),
    )


def _reasons(report: Json) -> Iterator[str]:
    failing = [each for each in _records(report.get("findings")) if each.get("severity") == "fail"]
    for each in failing[:MOST_REASONS]:
        problem = str(each.get("problem") or "").partition("\n")[0]
        yield f"{each.get('check')}: {each.get('subject')}{problem and f': {problem}'}"[:MOST_REASON]
    headline = str(report.get("headline") or "")
    if not failing and headline:
        verdict, _, why = headline.partition(": ")
        yield (why if verdict in UNKNOWN_WORDS else headline)[:MOST_REASON]


def _kind(report: Json, node: Json, gpus: list[Json]) -> Iterator[tuple[str, str]]:
    names = Counter(str(gpu.get("name")) for gpu in gpus)
    yield "GPUs", ", ".join(f"{count} x {name}" for name, count in sorted(names.items())) or "none"
    yield "ranks", f"{report.get('world_size')} on {report.get('backend')}, {report.get('profile')}"
    yield "machine", str(_inside(node, "system").get("architecture"))


def _settings(node: Json, gpus: list[Json]) -> Iterator[tuple[str, str]]:
    system, software, torch = _inside(node, "system"), _inside(node, "software"), _inside(node, "software", "torch")
    yield from _said(
        {
            "kernel": system.get("kernel"),
            "CPU model": system.get("cpu_model"),
            "server model": system.get("product"),
            "BIOS": system.get("bios"),
            "CPUs": system.get("cpu_count"),
            "memory GiB": _in(GIB, system.get("memory_total_bytes")),
            "IOMMU options": system.get("iommu_options"),
            "driver": _inside(node, "driver").get("version"),
            "Python": software.get("python"),
            "torch": torch.get("version"),
            "NCCL": torch.get("nccl"),
            "memlock": _inside(node, "limits").get("memlock_bytes"),
            "/dev/shm MiB": _in(1 << 20, _inside(node, "shm").get("size_bytes")),
        }
    )
    nics, ports = _records(node.get("nics")), _records(node.get("hca_ports"))
    yield from _said(
        {
            "NIC firmware": sorted({str(nic.get("firmware")) for nic in nics}) or None,
            "HCAs": [str(nic.get("name")) for nic in nics] or None,
            "HCA ports active": sum(port.get("state") == "ACTIVE" for port in ports) if ports else None,
            "HCA rates Gbit/s": sorted(str(port.get("rate_gbit_s")) for port in ports) or None,
            "interfaces": sorted(
                f"{each.get('name')} {each.get('mtu')}" for each in _records(node.get("netifs")) if each.get("driver")
            ),
            "PCIe widths": sorted(str(_inside(gpu, "pcie").get("width")) for gpu in gpus) or None,
            "NVLinks active": sorted(_active_links(gpu) for gpu in gpus) or None,
            **{name: sorted({str(gpu.get(key)) for gpu in gpus}) or None for name, key in GPU_SETTINGS.items()},
            "GPU memory GiB": sorted({_in(GIB, gpu.get("memory_total_bytes")) or "?" for gpu in gpus}) or None,
        }
    )


def _speeds(report: Json) -> Iterator[tuple[str, float]]:
    default = next((each for each in _records(report.get("trials")) if each.get("candidate") == DEFAULT), {})
    for result in _records(default.get("results")):
        size, collective = result.get("size_bytes"), result.get("collective")
        if not isinstance(size, int) or not isinstance(collective, str) or result.get("verified") is not True:
            continue
        if not 0 <= size < MOST_SIZE:
            continue
        what = f"{collective} {size_text(size)}"
        busbw, median = _number(result.get("busbw_gb_s")), _number(result.get("median_us"))
        if busbw > 0:
            yield f"{what} busbw GB/s", busbw
        elif median > 0:
            yield f"{what} median us", median
        tail = _number(result.get("p95_us"))
        if tail > 0 and median > 0:
            yield f"{what} slow calls", max(1.0, tail / median)
        slowest = max((_number(rank.get("slowdown")) for rank in _records(result.get("ranks"))), default=0.0)
        if slowest > 0:
            yield f"{what} slowest rank", slowest


def _below_nccl(report: Json) -> Iterator[tuple[str, float]]:
    """Yield (name, worst value) for each error counter, and for each GPU test that does not use NCCL.

    Tests that were repeated under load are left out.
    """
    slowest: dict[str, float] = {}
    for test in _records(report.get("gpu_tests")):
        if test.get("repetition") == 0:
            named = [(f"GEMM {gemm.get('dtype')} TFLOP/s", gemm.get("tflop_s")) for gemm in _records(test.get("gemms"))]
            named += [(_copy(copy), copy.get("gb_s")) for copy in _records(test.get("copies"))]
            _keep_least(slowest, named)
    for pair in _records(report.get("p2p")):
        if pair.get("repetition") == 0:
            best: dict[tuple[str, object], float] = {}  # a pair that looked slow was timed twice
            for speed in _records(pair.get("speeds")):
                key = f"peer copy {speed.get('by')} {size_text(_size(speed))} GB/s", str(speed.get("direction"))
                best[key] = max(best.get(key, 0.0), _number(speed.get("gb_s")))
            _keep_least(slowest, [(name, value) for (name, way), value in best.items() if way != "both"])
    yield from slowest.items()
    grown: dict[str, float] = {}
    for counter in _records(report.get("counters")):
        if counter.get("kind") != "traffic" and (value := _number(counter.get("grown"))) >= 0:
            name = f"grown {counter.get('name')} count"
            grown[name] = max(grown.get(name, 0.0), value)
    yield from grown.items()


def _copy(copy: Json) -> str:
    is_near = copy.get("is_near")
    near = "near" if is_near is True else "far" if is_near is False else "unknown"
    return f"{copy.get('direction')} {near} NUMA GB/s"


def _size(record: Json) -> int:
    size = record.get("size_bytes")
    return size if isinstance(size, int) and 0 <= size < MOST_SIZE else 0


def _keep_least(slowest: dict[str, float], named: list[tuple[str, object]]) -> None:
    for name, value in named:
        speed = _number(value)
        if speed > 0:
            slowest[name] = min(slowest.get(name, speed), speed)


def _gpu_metrics(gpus: list[Json]) -> Iterator[tuple[str, float]]:
    """Yield (name, value of the worst GPU) for each metric."""
    found = {
        "hottest GPU C": [_number(gpu.get("temperature_c")) for gpu in gpus],
        "ECC corrected count": [_number(_inside(gpu, "ecc").get("aggregate_corrected")) for gpu in gpus],
        "row remaps count": [_number(_inside(gpu, "row_remap").get("correctable")) for gpu in gpus],
        "PCIe replays count": [_number(_inside(gpu, "pcie").get("replays")) for gpu in gpus],
        "NVLink errors count": [_link_errors(gpu) for gpu in gpus if gpu.get("nvlinks")],
    }
    for name, values in found.items():
        worst = max(values, default=UNREAD)
        if worst >= 0:
            yield name, worst


def _link_errors(gpu: Json) -> float:
    read = [link.get(key) for link in _records(gpu.get("nvlinks")) for key in LINK_ERRORS]
    return sum(max(0.0, _number(count)) for count in read if count)  # most are 0, and there are 432 of them


def _active_links(gpu: Json) -> str:
    return str(sum(link.get("is_active") is True for link in _records(gpu.get("nvlinks"))))


def _inside(record: Json, *keys: str) -> Json:
    for key in keys:
        inner = record.get(key)
        if not isinstance(inner, dict):
            return {}
        record = inner
    return record


def _records(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _said(facts: dict[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if value is not None:
            yield name, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _in(unit_bytes: int, size_bytes: object) -> str | None:
    size = _number(size_bytes)
    return f"{size / unit_bytes:.0f}" if size >= 0 else None


def _number(value: object) -> float:
    """Return `value` if it is a finite number, else UNREAD, which marks a missing value."""
    if type(value) is float or type(value) is int:  # a bool is an int, but no number; and this runs often
        return float(value) if -1e300 < value < 1e300 else UNREAD
    return UNREAD
