"""Network profiles that clouds publish for their 8-GPU nodes, and why a job on several nodes keeps each variable.

Read in NCCL's sources at 5067397c (2.30.7), below src/.
"""

from __future__ import annotations

# Google's nccl-env-profile.sh, AWS' p5 examples, Azure's azhpc and
# Oracle's MLPerf submissions, CoreWeave's nccl-tests.
CLOUD_PROFILES = {
    "Google a3-mega": (
        "NCCL_FASTRAK_CTRL_DEV", "NCCL_FASTRAK_IFNAME", "NCCL_FASTRAK_NUM_FLOWS", "NCCL_FASTRAK_USE_SNAP",
        "NCCL_FASTRAK_USE_LLCM", "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY", "NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING",
        "NCCL_SOCKET_IFNAME", "NCCL_CROSS_NIC", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_BUFFSIZE",
        "NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE", "NCCL_NET_GDR_LEVEL",
        "NCCL_NVLS_ENABLE", "NCCL_TUNER_CONFIG_PATH", "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE",
    ),
    "AWS p5": ("NCCL_SOCKET_IFNAME", "NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_PROTO", "NCCL_TUNER_PLUGIN"),
    "Azure ND H100": (
        "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_SOCKET_IFNAME", "NCCL_COLLNET_ENABLE", "NCCL_SHARP_DISABLE",
    ),
    "Oracle BM.GPU.H100": (
        "NCCL_CUMEM_ENABLE", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_GID_INDEX",
        "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_TIMEOUT", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS",
        "NCCL_IGNORE_CPU_AFFINITY", "NCCL_GRAPH_REGISTER", "NCCL_LOCAL_REGISTER", "NCCL_NVLS_ENABLE",
    ),
    "CoreWeave": ("NCCL_SOCKET_IFNAME", "NCCL_COLLNET_ENABLE", "NCCL_IB_HCA"),
}  # fmt: skip

PLUGIN = "not in NCCL's sources: Google's network plugin reads it, between nodes"
WHY_IT_STAYS = {
    "NCCL_ALGO": "graph/tuning.cc chooses the algorithm for all sizes of communicators",
    "NCCL_BUFFSIZE": "init.cc sizes the buffers of every transport, the network's too",
    "NCCL_COLLNET_ENABLE": "init.cc: reductions in the network's switches, between nodes only",
    "NCCL_CROSS_NIC": "graph/search.cc: whether a ring may change its rail between nodes",
    "NCCL_CUMEM_ENABLE": "misc/cudawrap.cc: memory that nodes share over NVLink (MNNVL) is cuMem's too",
    "NCCL_GRAPH_REGISTER": "register/coll_reg.cc registers buffers with the network as well",
    "NCCL_IB_GID_INDEX": "transport/net_ib/connect.cc: RoCE's address",
    "NCCL_IB_HCA": "transport/net_ib/init.cc: which adapters",
    "NCCL_IB_PCI_RELAXED_ORDERING": "transport/net_ib/init.cc: how adapters register memory",
    "NCCL_IB_QPS_PER_CONNECTION": "transport/net_ib/connect.cc: queue pairs between nodes",
    "NCCL_IB_SL": "transport/net_ib/connect.cc: the fabric's service level",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "transport/net_ib/common.cc: queue pairs between nodes",
    "NCCL_IB_TC": "transport/net_ib/connect.cc: RoCE's traffic class",
    "NCCL_IB_TIMEOUT": "transport/net_ib/connect.cc: a queue pair's timeout",
    "NCCL_IGNORE_CPU_AFFINITY": "graph/topo.cc: where the proxy threads of the network run",
    "NCCL_LOCAL_REGISTER": "register/coll_reg.cc registers buffers with the network as well",
    "NCCL_MIN_NCHANNELS": "graph/connect.cc: channels of rings that span nodes too",
    "NCCL_NET_GDR_LEVEL": "graph/paths.cc ncclTopoCheckGdr: adapter and GPU",
    "NCCL_NVLS_ENABLE": "transport/nvls.cc: NVLSTree reduces in a node for what goes between nodes",
    "NCCL_P2P_NET_CHUNKSIZE": "init.cc computeBuffSizes reads it if there are several nodes",
    "NCCL_P2P_NVL_CHUNKSIZE": "init.cc computeBuffSizes: communicators of one node, which jobs on several have too",
    "NCCL_P2P_PCI_CHUNKSIZE": "init.cc computeBuffSizes: communicators of one node, which jobs on several have too",
    "NCCL_PROTO": "graph/tuning.cc chooses the protocol for all sizes of communicators",
    "NCCL_SHARP_DISABLE": "not in NCCL's sources: the SHARP plugin's, which reduces between nodes",
    "NCCL_SOCKET_IFNAME": "misc/socket.cc: the interface of every node's bootstrap",
    "NCCL_SOCKET_NTHREADS": "transport/net_socket.cc: connections between nodes",
    "NCCL_TUNER_CONFIG_PATH": "not in NCCL's sources: Google's tuner plugin reads it for all communicators",
    "NCCL_TUNER_PLUGIN": "plugin/tuner.cc: a plugin that tunes all communicators",
    **dict.fromkeys(
        (name for name in CLOUD_PROFILES["Google a3-mega"] if name.startswith(("NCCL_FASTRAK_", "NCCL_SHIMNET_"))),
        PLUGIN,
    ),
}
