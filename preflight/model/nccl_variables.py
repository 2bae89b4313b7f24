"""A table of NCCL's environment variables, the features that they disable, and the faults that they hide."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.repairs import FABRIC_MANAGER, NO_REPAIR, P2P_ANYWHERE, RDMA, UNPROTECTED, Repair, shm_room


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable of NCCL.

    A new variable is a new row. If preflight should try the variable, also add a line in search/settings.
    """

    name: str
    is_integer: bool = True  # read by strtoll in base 0: a value that does not start with a number is 0
    off: str = ""  # the value that disables a feature of NCCL; users copy it from forum answers
    costs: str = ""  # the feature that `off` disables
    hides: str = ""  # the transport with the fault that `off` hides
    families: tuple[str, ...] = ()  # of error texts that make it suspect (model/error_texts.py); no-rdma: disables RDMA
    since: tuple[int, int] = (2, 0)  # the first release of NCCL that reads it
    on_since: tuple[int, int] | None = None  # the first release with the feature on by default
    repair: Repair = NO_REPAIR  # the repair after which the setting is no longer needed


P2P = Repair(f"{P2P_ANYWHERE}. Before the repair, {UNPROTECTED}")
SITE = Repair("in the site's settings, name the interface that reaches the other nodes")
VARIABLES = (
    Variable(
        "NCCL_P2P_DISABLE", families=("p2p",), off="1", costs="direct GPU-to-GPU copies, NVLink included", hides="P2P",
        repair=P2P,
    ),
    Variable("NCCL_P2P_LEVEL", families=("p2p",), is_integer=False, repair=P2P),
    Variable(
        "NCCL_SHM_DISABLE", families=("shm",), off="1", costs="shared memory between the ranks of a node", hides="SHM",
        repair=shm_room(),
    ),
    Variable(
        "NCCL_IB_DISABLE", families=("ib", "no-rdma"), off="1", costs="InfiniBand and RoCE", hides="IB",
        repair=RDMA,
    ),
    Variable(
        "NCCL_NET", families=("ib", "plugin", "no-rdma"), since=(2, 10), is_integer=False, off="socket", hides="IB",
        repair=Repair("find which network fails (`NCCL_DEBUG=INFO`, lines with NET/): its plugin, or the RDMA ports"),
    ),
    Variable(
        "NCCL_NET_PLUGIN", families=("plugin",), since=(2, 11), is_integer=False,
        repair=Repair("install the plugin that fits this NCCL, or remove libnccl-net.so from the library path"),
    ),
    Variable(
        "NCCL_NVLS_ENABLE", families=("nvls",), since=(2, 17), off="0", hides="NVLS",
        costs="NVLink SHARP (a quarter of the all-reduce speed of an HGX H100)",
        repair=Repair(FABRIC_MANAGER),
    ),
    Variable(
        "NCCL_CUMEM_ENABLE", families=("cumem", "p2p", "nvls"), since=(2, 18), on_since=(2, 19), off="0",
        costs="cuMem allocations, and NVLS buffer registration with them",
        repair=Repair("install a newer driver, and start the container with all capabilities of the GPUs"),
    ),
    Variable(
        "NCCL_CUMEM_HOST_ENABLE", families=("cumem", "shm"), since=(2, 23), on_since=(2, 24),
        repair=Repair(
            "use NCCL 2.26.5 or newer, or allow the kernel's NUMA calls",
            "start the container with `--cap-add SYS_NICE`, or use NCCL 2.26.5 or newer",
        ),
    ),
    Variable(
        "NCCL_IB_HCA", families=("ib",), is_integer=False,
        repair=Repair("repair the other ports (`ibstat`, `perfquery -x`), or name the working ports in the site's "
        "settings"),
    ),
    Variable(
        "NCCL_IB_GID_INDEX", families=("ib",),
        repair=Repair("install a torch with NCCL 2.21 or newer, which finds the GID itself"),
    ),
    Variable(
        "NCCL_MNNVL_ENABLE", families=("mnnvl",), since=(2, 21),
        repair=Repair("start nvidia-imex on every node of the NVLink domain: `nvidia-imex-ctl -N`"),
    ),
    Variable(
        "NCCL_SOCKET_FAMILY", families=("socket",), is_integer=False,
        repair=Repair("give the interface an IPv6 address that works, or none"),
    ),
    Variable(
        "NCCL_TOPO_FILE", families=("topology",), is_integer=False,
        repair=Repair("use the topology file of this machine type, or `unset NCCL_TOPO_FILE`"),
    ),
    Variable("NCCL_SOCKET_IFNAME", families=("socket",), is_integer=False, repair=SITE),
    Variable("GLOO_SOCKET_IFNAME", is_integer=False, repair=SITE),
    *map(Variable, (
        "NCCL_BUFFSIZE", "NCCL_COMM_BLOCKING", "NCCL_CROSS_NIC", "NCCL_DMABUF_ENABLE", "NCCL_IB_ADAPTIVE_ROUTING",
        "NCCL_IB_ECE_ENABLE", "NCCL_IB_MERGE_NICS", "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_QPS_PER_CONNECTION",
        "NCCL_IB_RETRY_CNT", "NCCL_IB_RETURN_ASYNC_EVENTS", "NCCL_IB_SL", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_TC",
        "NCCL_IB_TIMEOUT", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_IGNORE_DISABLED_P2P", "NCCL_IPC_USE_ABSTRACT_SOCKET",
        "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_NET_DISABLE_INTRA",
        "NCCL_NET_GDR_C2C", "NCCL_NET_GDR_READ", "NCCL_NSOCKS_PERTHREAD", "NCCL_NVB_DISABLE", "NCCL_P2P_DIRECT_DISABLE",
        "NCCL_PXN_DISABLE", "NCCL_RAS_ENABLE", "NCCL_RUNTIME_CONNECT", "NCCL_SOCKET_NTHREADS",
        "NCCL_SOCKET_POLL_TIMEOUT_MSEC", "NCCL_SOCKET_RETRY_CNT", "NCCL_SOCKET_RETRY_SLEEP_MSEC",
    )),
)  # fmt: skip
BY_NAME = {variable.name: variable for variable in VARIABLES}


def assignment(name: str, value: str) -> str:
    """Return `NAME=VALUE` for the variable `name` and its `value`.

    A value that begins with an equals sign is quoted, because two equals signs look like a typing error.
    """
    return f'{name}="{value}"' if value.startswith("=") else f"{name}={value}"
