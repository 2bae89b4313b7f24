"""For each conservative setting what really wants repair, so that its line can be deleted again (facts 7)."""

from __future__ import annotations

P2P = (
    "boot with `iommu=pt` (or the IOMMU off in the BIOS) and switch ACS off on the bridges between "
    "the GPUs (`setpci -s BRIDGE ECAP_ACS+6.w=0`; in a VM the host decides). Until then no setting of NCCL's protects "
    'copies outside it, such as `tensor.to("cuda:1")`, device_map and pipelines'
)
REPAIRS = {
    "NCCL_P2P_DISABLE": P2P,
    "NCCL_P2P_LEVEL": P2P,
    "NCCL_SHM_DISABLE": "give /dev/shm room: `mount -o remount,size=8g /dev/shm`, and let all ranks share it",
    "NCCL_IB_DISABLE": "the RDMA ports: `ibstat` (Active, LinkUp), `ulimit -l` (unlimited), `show_gids` (RoCE)",
    "NCCL_IB_HCA": "the other ports: `ibstat`, `perfquery -x`; or name these in the site's settings",
    "NCCL_IB_GID_INDEX": "a torch with NCCL 2.21 or newer, which finds the GID itself",
    "NCCL_NET": "find which network fails (`NCCL_DEBUG=INFO`, lines with NET/): its plugin, or the RDMA ports",
    "NCCL_NET_PLUGIN": "install the plugin that fits this NCCL, or take libnccl-net.so off the library path",
    "NCCL_NVLS_ENABLE": "start the Fabric Manager of the driver's own version: `systemctl status nvidia-fabricmanager`",
    "NCCL_CUMEM_ENABLE": "a newer driver, and a container that passes all of the GPUs' capabilities in",
    "NCCL_CUMEM_HOST_ENABLE": "NCCL 2.26.5 or newer, or let the kernel's NUMA calls through",
    "NCCL_MNNVL_ENABLE": "start nvidia-imex on every node of the NVLink domain: `nvidia-imex-ctl -N`",
    "NCCL_SOCKET_FAMILY": "give the interface an IPv6 address that works, or none",
    "NCCL_SOCKET_IFNAME": "nothing: name the interface that leads to the other nodes in the site's settings",
    "GLOO_SOCKET_IFNAME": "nothing: name the interface that leads to the other nodes in the site's settings",
}
CONTAINER_REPAIRS = {
    "NCCL_SHM_DISABLE": "start the container with `--shm-size=8g` or `--ipc=host` (Kubernetes: emptyDir in memory)",
    "NCCL_IB_DISABLE": "start the container with `--device /dev/infiniband --ulimit memlock=-1`; then ask `ibstat`",
    "NCCL_CUMEM_HOST_ENABLE": "start the container with `--cap-add SYS_NICE`, or use NCCL 2.26.5 or newer",
}
CONFIGURATION = "take what does not work out of the files that NCCL reads: /etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE"
INHERITED = "find who sets it (`grep -rn NAME ~/.bashrc /etc/profile.d`) and keep it there: the job needs it"


def repair_of(name: str, value: str, *, contained: bool, inherited: bool) -> str:
    """Return the repair behind a setting, "" where none is known; it depends on who made /dev/shm and the devices."""
    if inherited:
        return INHERITED.replace("NAME", name)
    if not value or name == "NCCL_CONF_FILE":
        return CONFIGURATION
    return (CONTAINER_REPAIRS.get(name, "") if contained else "") or REPAIRS.get(name, "")
