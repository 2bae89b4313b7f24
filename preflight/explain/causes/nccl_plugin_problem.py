"""A network plugin of NCCL (AWS OFI, HPC-X, GPUDirect-TCPX, ...) that fails or is not the same everywhere."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    id="nccl_plugin_problem",
    promise="NCCL can use an add-on for special networks (such as Amazon's EFA). That add-on, or the driver "
    "below it, does not work here.",
    signs=(
        Sign(
            "plugin.ofi",
            r"NCCL WARN NET/OFI|NET/OFI (?:Request|Couldn|Unable|Error|Failed|Invalid)|"
            r"fi_getinfo[^\n]{0,60}(?:empty|fail|error)|provider efa output empty|"
            r"Creating new endpoint[^\n]{0,60}failed",
            Authority.SETUP,
            "the OFI network plugin (AWS EFA and others) reports an error",
        ),
        Sign(
            "plugin.other",
            r"NCCL WARN NET/(?:FasTrak|GPUDirectTCPX|gIB|UCX|Plugin|MSCCLPP)|"
            r"NET/Plugin[^\n]{0,60}(?:incompatible|version mismatch)|"
            r"[Ff]ailed to initialize (?:any )?NET plugin|ncclNet\w{0,20}init[^\n]{0,20}fail|"
            r"NCCL_NET_PLUGIN[^\n]{0,60}(?:fail|not found)|NET/UCX[^\n]{0,60}(?:fail|error|ERROR)",
            Authority.SETUP,
            "a network plugin of NCCL reports an error",
        ),
        Sign(
            "plugin.mismatch",
            r"NET(?:/Plugin)? mismatch|[Nn]etwork plugin mismatch|"
            r"ranks? (?:are )?using different net(?:work)? plugins?",
            Authority.SETUP,
            "ranks use different network plugins",
        ),
    ),
    judge=by_signs("nccl_plugin_problem", "NCCL's network plugin failed ({who}{host})."),
    remedy=fixed(
        'Compare on all nodes: grep -h "NET/" LOG | sort | uniq -c. The plugin and its version have to '
        "be the same everywhere.",
        "EFA: fi_info -p efa must list devices inside the container; pass /dev/infiniband in, open the "
        "security group to itself, and use an aws-ofi-nccl built for this NCCL.",
        "To prove it: NCCL_NET_PLUGIN=none NCCL_NET=Socket once. If that runs, the plugin is the fault "
        "(slow; not for production).",
    ),
    needs="it runs with NCCL_NET_PLUGIN=none",
    confirm_with="preflight check",
    outranks=frozenset({"ib_broken"}),
)
