"""The PCI tree of a machine as NCCL reads it from a file (NCCL_TOPO_FILE)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import quoteattr

Facts = Mapping[str, Any]


def topology(node: Facts, has_adapters: bool = False) -> str:
    """Return the PCI tree as NCCL writes it (NCCL_TOPO_DUMP_FILE); what it names is not looked for in /sys.

    With `has_adapters` a card is in it as its RDMA adapter, whose speed NCCL asks of the library.
    """
    if has_adapters:
        adapters = [{"name": nic["name"], "bdf": nic["bdf"]} for nic in node["nics"]]
        places = {each["bdf"] for each in adapters}
        others = [each for each in node.get("netifs") or () if each.get("bdf") not in places]
        node = {**node, "netifs": [*others, *adapters]}
    lines = ['<system version="1">']
    for numa in node["numa_nodes"]:
        lines.append(f"  <cpu{_attributes(_cpu(node, numa))}>")
        lines += _branch(
            [each for each in node["pci"] if _is_told(each, node) and (each["numa_node"] or 0) == numa["id"]],
            node,
            2,
            0,
        )
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def _cpu(node: Facts, numa: Facts) -> dict[str, str]:
    mask = sum(1 << cpu for cpu in numa["cpus"])
    digits = f"{mask:0{8 * max(1, -(-mask.bit_length() // 32))}x}"
    words = ",".join(digits[i : i + 8] for i in range(0, len(digits), 8))
    amd = "AMD" in str(node["system"]["cpu_model"])
    kind = (
        {"vendor": "AuthenticAMD", "familyid": "143", "modelid": "49"}
        if amd
        else {"vendor": "GenuineIntel", "familyid": "6", "modelid": "106"}
    )
    return {"numaid": str(numa["id"]), "affinity": words, "arch": "x86_64", **kind}


def _branch(devices: list[Facts], node: Facts, depth: int, level: int) -> Iterator[str]:
    """Yield the devices below one another; NCCL has a switch by its upstream port and leaves the downstream one out."""
    space = "  " * depth
    groups: dict[str, list[Facts]] = {}
    for device in devices:
        switches = device["parents"][1::2] if len(device["parents"]) > 1 else []
        if level < len(switches):
            groups.setdefault(switches[level], []).append(device)
        else:
            yield from _device(device, node, space)
    for switch, below in groups.items():
        yield f"{space}<pci{_attributes({'busid': switch, 'class': '0x060400'} | _speed(below[0]))}>"
        yield from _branch(below, node, depth + 1, level + 1)
        yield f"{space}</pci>"


def _is_told(device: Facts, node: Facts) -> bool:
    """Tell whether NCCL's file has the device: GPUs, and cards whose interface is known."""
    return device["kind"] == "gpu" or (device["kind"] == "nic" and _netif_of(device, node) is not None)


def _netif_of(device: Facts, node: Facts) -> Facts | None:
    return next((each for each in node.get("netifs") or () if each.get("bdf") == device["bdf"]), None)


def _device(device: Facts, node: Facts, space: str) -> Iterator[str]:
    if netif := _netif_of(device, node):
        yield f"{space}<pci{_attributes({'busid': device['bdf'], 'class': '0x020000'} | _speed(device))}>"
        named = {"name": str(netif["name"])}
        named |= {"speed": str(netif["speed_mbit_s"])} if "speed_mbit_s" in netif else {}
        yield f"{space}  <nic><net{_attributes(named)}/></nic>"
        yield f"{space}</pci>"
        return
    gpu = next(each for each in node["gpus"] if each["bdf"] == device["bdf"])
    yield f"{space}<pci{_attributes({'busid': device['bdf'], 'class': '0x030200'} | _speed(device))}>"
    sm = gpu["compute_capability"].replace(".", "")
    links: dict[tuple[str, str], int] = {}
    for link in gpu.get("nvlinks") or ():
        if link["is_active"]:
            key = (link["peer_bdf"], "0x068000" if link["peer"] == "switch" else "0x030200")
            links[key] = links.get(key, 0) + 1
    yield f"{space}  <gpu{_attributes({'dev': str(gpu['nvml_index']), 'sm': sm})}>"
    for (target, kind), count in links.items():
        yield f"{space}    <nvlink{_attributes({'target': target, 'count': str(count), 'tclass': kind})}/>"
    yield f"{space}  </gpu>"
    yield f"{space}</pci>"


def _speed(device: Facts) -> dict[str, str]:
    return {"link_speed": f"{device['speed_max_gt_s']} GT/s PCIe", "link_width": str(device["width_max"])}


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f" {name}={quoteattr(value)}" for name, value in values.items())
