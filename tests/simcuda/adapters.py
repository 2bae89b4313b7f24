"""RDMA adapters of a simulated machine: the facts `nics` and `hca_ports`, written for the library, /sys and NCCL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

Facts = Mapping[str, Any]
NODES = 4  # that a machine's file describes: ranks of one machine may play several
LINKS = {"InfiniBand": 1, "Ethernet": 2}
# By Gbit/s, the width and speed of a port as verbs number them, and as the kernel writes them.
RATES = {25: (1, 32, "1X EDR"), 40: (2, 4, "4X QDR"), 56: (2, 16, "4X FDR"), 100: (2, 32, "4X EDR"),
         200: (2, 64, "4X HDR"), 400: (2, 128, "4X NDR"), 800: (4, 128, "8X NDR")}  # fmt: skip
MTU = 5  # 4096 bytes
COUNTERS = (
    "port_xmit_data", "port_rcv_data", "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors",
    "port_xmit_discards", "port_xmit_wait",
)  # fmt: skip
HW_COUNTERS = ("local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "rnr_nak_retry_err", "np_cnp_sent")


def describe(number: int, bdf: str, numa_node: int, is_roce: bool) -> tuple[Facts, Facts]:
    """Return an adapter of 200 Gbit/s and its port, as the facts of a node have them.

    A RoCE port has what mlx5 writes into its table: v1 and v2 of the link-local address, then of 192.168.10.1.
    """
    name, local = f"mlx5_{number}", f"fe80::e42:a103:aa:{number:x}"
    mapped = f"::ffff:192.168.{10 + number}.1"
    table = [(local, "IB/RoCE v1"), (local, "RoCE v2"), (mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]
    gids = [
        {"gid_index": i, "gid": IPv6Address(gid).exploded, "type": kind, "netif": f"eth{number + 1}"}
        for i, (gid, kind) in enumerate(table if is_roce else table[:1])
    ]
    nic = {"name": name, "bdf": bdf, "numa_node": numa_node, "device": "15b3:101b", "firmware": "20.99.1000"}
    port = {
        "hca": name, "port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "rate_gbit_s": 200.0,
        "link_layer": "Ethernet" if is_roce else "InfiniBand", "lid": 0 if is_roce else 17 + number,
        "sm_lid": 0 if is_roce else 1, "gids": gids, "pkeys": ["0xffff"],
    }  # fmt: skip
    return nic, port


def on_node(node: Facts, number: int) -> Facts:
    """Return the facts with the LIDs and addresses that the same machine has as another node."""

    def address(gid: str) -> str:
        groups = [int(each, 16) for each in IPv6Address(gid).exploded.split(":")]
        groups[7 if groups[5] == 0xFFFF else 6] += number  # 192.168.10.1 is 192.168.10.2; or of another adapter
        return ":".join(f"{each:04x}" for each in groups)

    ports = [
        {
            **port,
            "lid": port["lid"] and port["lid"] + 100 * number,
            "gids": [{**gid, "gid": address(gid["gid"])} for gid in port["gids"]],
        }
        for port in node["hca_ports"]
    ]
    return {**node, "hca_ports": ports, "node_number": number}


def answers(node: Facts) -> str:
    """Return the lines that the library reads from the machine's file (c/verbs/adapters.c), for each node."""
    return "".join(f"{line}\n" for number in range(NODES) for line in _lines(on_node(node, number), number))


def _lines(node: Facts, number: int) -> Iterator[str]:
    for i, nic in enumerate(node["nics"]):
        here = f"hca/{number}/{i}"
        yield f"{here} {nic['name']} {_guid(i, number):016x}"
        for port in (each for each in node["hca_ports"] if each["hca"] == nic["name"]):
            width, speed, _ = RATES[int(port["rate_gbit_s"])]
            state = 4 if port["state"] == "ACTIVE" else 1
            codes = (state, LINKS[port["link_layer"]], port["lid"], width, speed, MTU)
            yield f"{here}/port/{port['port']} {' '.join(map(str, codes))} {port.get('network', 'one')}"
            for gid in port["gids"]:
                version = 2 if "v2" in gid["type"] else 1
                yield f"{here}/gid/{port['port']}/{gid['gid_index']} {version} {gid['gid']}"
            yield from (f"{here}/pkey/{port['port']}/{slot} {pkey}" for slot, pkey in enumerate(port["pkeys"]))


def _guid(adapter: int, node: int) -> int:
    return 0x0C42A10300AA0000 + 0x100 * node + adapter


def write_sys(node: Facts, root: Path, has_peermem: bool) -> None:
    """Write the folders class, devices and module that lie over those of /sys."""
    shutil.rmtree(root, ignore_errors=True)
    for i, nic in enumerate(node["nics"]):
        device = root / "devices/pci0000:00" / nic["bdf"]
        place, verbs = device / "infiniband" / nic["name"], device / f"infiniband_verbs/uverbs{i}"
        guid = f"{_guid(i, node['node_number']):016x}"
        vendor, _, kind = str(nic["device"]).partition(":")
        files: dict[Path, object] = {
            device / "vendor": f"0x{vendor}", device / "device": f"0x{kind}", device / "class": "0x020000",
            device / "numa_node": nic["numa_node"], device / "max_link_speed": "16.0 GT/s PCIe",
            device / "max_link_width": 16, device / "current_link_speed": "16.0 GT/s PCIe",
            device / "current_link_width": 16, place / "node_type": "1: CA", place / "fw_ver": nic["firmware"],
            place / "node_guid": ":".join(guid[at : at + 4] for at in range(0, 16, 4)), verbs / "ibdev": nic["name"],
        }  # fmt: skip
        for port in (each for each in node["hca_ports"] if each["hca"] == nic["name"]):
            files |= _port_files(port, place / f"ports/{port['port']}")
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        (place / "device").symlink_to(f"../../../{nic['bdf']}")
        (verbs / "device").symlink_to("../..")
        for name, target in (("infiniband", place), ("infiniband_verbs", verbs)):
            (root / "class" / name).mkdir(parents=True, exist_ok=True)
            (root / "class" / name / target.name).symlink_to(Path("../..", target.relative_to(root)))
    if has_peermem:
        (root / "module/nvidia_peermem").mkdir(parents=True)
        (root / "module/nvidia_peermem/version").write_text("580.95.05\n")


def _port_files(port: Facts, place: Path) -> dict[Path, object]:
    is_active, rate = port["state"] == "ACTIVE", int(port["rate_gbit_s"])
    table = {place / f"gids/{i}": IPv6Address("::").exploded for i in range(16)}
    for gid in port["gids"]:
        table |= {
            place / f"gids/{gid['gid_index']}": gid["gid"],
            place / f"gid_attrs/types/{gid['gid_index']}": gid["type"],
            place / f"gid_attrs/ndevs/{gid['gid_index']}": gid["netif"] or "",
        }
    return {
        place / "state": "4: ACTIVE" if is_active else "1: DOWN", place / "link_layer": port["link_layer"],
        place / "phys_state": "5: LinkUp" if is_active else "3: Disabled", place / "lid": hex(port["lid"]),
        place / "rate": f"{rate} Gb/sec ({RATES[rate][2]})", place / "sm_lid": hex(port["sm_lid"]),
        **{place / f"counters/{name}": 0 for name in COUNTERS},
        **{place / f"hw_counters/{name}": 0 for name in HW_COUNTERS},
        **{place / f"pkeys/{slot}": pkey for slot, pkey in enumerate(port["pkeys"])}, **table,
    }  # fmt: skip
