"""Error texts that several parts of preflight recognize, from NCCL, torch, CUDA, libraries and the kernel."""
# The sources are in docs/dev/nccl-facts.md, sections 1.1, 2.2, 2.3 and 7. `preflight explain`, the checks and the
# search for settings use these texts. Texts that only `preflight explain` uses are defined with their cause.

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from preflight.model.nccl_diagnostics import PAIR_FAILED, printed


class ErrorText(NamedTuple):
    """The pattern of a log line, its meaning, and the groups of settings that may be the cause.

    The pattern must have no look-around and no nested repetition.
    """

    # Without look-around and nested repetition, matching takes linear time.

    means: str
    pattern: str
    families: tuple[str, ...] = ()  # of settings in `model/nccl_variables.py`


TEXTS = {
    "p2p.failed": ErrorText("direct copies between GPUs failed",
        r"peer access is not supported|cudaErrorPeerAccess|cudaErrorTooManyPeers|"
        r"transport/p2p\.cc:\d{1,5}[^\n]{0,30} NCCL WARN|transport\.cc:\d{1,5} NCCL WARN Cuda failure|IO_PAGE_FAULT|"
        r"DMAR: \[DMA (?:Read|Write)|P2P access (?:failed|check failed)|when batch testing peer-to-peer access|"
        r"doesn't support faster communication broadband via P2P|IPC memory creation failed|"
        r"hipIpc\w{3,20}(?: ->|[^\n]{0,40}fail|: [1-9])|Failed to create memory for IPC|"
        r"cudaIpc(?:Open|Get)MemHandle[^\n]{0,60}(?:fail|error|invalid)|"
        r"custom_all_?reduce\.(?:cuh|hip|cu):\d{1,5}[^\n]{0,20}'(?:invalid (?:argument|device|resource)|peer)|"
        r"transport/shm\.cc:\d{1,5}[^\n]{0,20} NCCL WARN Cuda failure (?:217|\d{1,3} 'peer)|"
        r"(?:HIP|CUDA) error: peer access|hipErrorPeerAccess\w{0,20}|Cuda failure (?:\d{1,3} )?'(?:peer (?:access|"
        r"mapping)[^'\n]{0,60}|mapping of buffer object failed|invalid resource handle)'", ("p2p",)),
    "p2p.engine": ErrorText("the engine's own path between the GPUs could not be set up",
        r"symm_mem\.rendezvous\(|create_allreduce_fusion_workspace\(", ("p2p",)),
    "p2p.diagnosed": ErrorText("NCCL's own diagnostics copied data between two GPUs, and it was wrong",
        printed(PAIR_FAILED), ("p2p",)),
    "shm.nccl": ErrorText("NCCL could not get shared memory in /dev/shm",
        r"Error while creating shared memory segment|failed to extend \S{0,60}(?:/dev/shm|nccl-)|"
        r"[Cc]all to posix_fallocate failed|Error: failed to extend|"
        r"/dev/shm[^\n]{0,80}(?:No space left|is too small|is full)|"
        r"[Cc]all to (?:ftruncate|fallocate) failed", ("shm",)),
    "shm.attach": ErrorText("NCCL could not get shared memory in /dev/shm",
        r"Error while attaching to shared memory segment|[Cc]all to shm_open failed", ("shm",)),
    "shm.loader": ErrorText("a data-loader worker ran out of shared memory",
        r"insufficient shared memory|workers are out of shared memory|"
        r"DataLoader worker \(pid[^\n]{1,80}\) is killed by signal: Bus error|"
        r"unable to (?:open|write to|mmap|resize|allocate) (?:file |shared memory )[^\n]{0,60}(?:torch_|/dev/shm)|"
        r"unable to write to file </torch_|unable to mmap \d{1,20} bytes from file </torch_|"
        r"unable to allocate shared memory\(shm\)|unable to resize file <[^\n]{1,80}to the right size|"
        r"Unexpected bus error encountered in worker|No space left on device: '/(?:dev/shm|psm_)", ("shm",)),
    "shm.sigbus": ErrorText("a process died of a bus error, as a full /dev/shm causes",
        r"exitcode {0,4}: {0,2}-7\b|Signal 7 \(SIGBUS\)|Signals\.SIGBUS|terminated with signal SIGBUS|"
        r"Bus error(?: +\(core dumped\)|: +\d|: nonexistent|$)|return code = -7\b|exited on signal 7\b|"
        r"KILLED BY SIGNAL: 7\b|[Ee]xit(?:ed with)?(?: exit)? code 135|Signal: Bus error", ("shm",)),
    "shm.hint": ErrorText("there was no room, or a bus error",
        r"No space left|Bus error|SIGBUS", ("shm",)),
    "ib.completion": ErrorText("a transfer over InfiniBand or RoCE ended with an error",
        r"EI0013|RO?CE CQE has error|Got completion (?:from peer|with)[^\n]{0,120}(?:error (?:1[0-4]|[1-46-9])\b|"
        r"status[= ][\w ]{0,30}\(?(?:1[0-4]|[1-46-9])\b|vendor[ _]err[= ](?:129|81|136|135|137)\b)", ("ib",)),
    "ib.flushed": ErrorText("a queue was emptied after another error",
        r"Got completion (?:from peer|with)[^\n]{0,120}(?:error 5\b|status[= ][\w ]{0,30}\(?5\b)|"
        r"UCX {1,3}ERROR [^\n]{0,100}Work Request Flushed", ("ib",)),
    "ib.memlock": ErrorText("a call into the InfiniBand library failed",
        r"(?:[Cc]all to (?:wrap_)?)?ibv_(?:reg_mr|create_[cq])\w{0,20}[^\n]{0,80}Cannot allocate memory", ("ib",)),
    "ib.verbs": ErrorText("a call into the InfiniBand library failed",
        r"[Cc]all to (?:wrap_)?ibv_(?:create|reg|modify|alloc|query|poll|post|dereg|destroy)\w{0,40} failed|"
        r"ibv_(?:create|reg|modify|alloc|poll|post)\w{0,40}(?:\([^)\n]{0,120}\))? failed|"
        r"[Ff]ailed to modify QP|Failed to register memory 0x[0-9a-f]{1,16}: |"
        r"Memory region not registered by any active device", ("ib",)),
    "ib.open": ErrorText("an InfiniBand device could not be opened; NCCL goes on without it",
        r"[Cc]all to ibv_(?:open|get|close)\w{3,40} failed|NET/IB[^\n]{0,10} Unable to open device", ("ib",)),
    "ib.async": ErrorText("the InfiniBand port reports an error",
        r"Got (?:non-fatal |fatal )?async (?:fatal |error )?event ?: (?:port error|local catastrophic|QP |CQ |"
        r"device fatal|local )|Got async event[^\n]{0,40}(?:error|fatal|catastrophic)|"
        r"async fatal event(?: on \w{2,3} \(0x[0-9a-f]{1,16}\))? ?: \w", ("ib",)),
    "ib.mlx5": ErrorText("the network card or its driver reports an error",
        r"mlx[45]_core[^\n]{0,80}(?:failed|timeout|error|health|Fatal|syndrome|[Ll]ink [Dd]own|Cable (?:unplugged|"
        r"error))", ("ib",)),
    "ib.link": ErrorText("the link of a fast network port went down",
        r"(?:mlx[45]_|irdma|bnxt_re|rdma|ib\d)[^\n]{0,40}(?:[Ll]ink (?:is )?(?:DOWN|[Dd]own)|state[^\n]{0,10}DOWN)|"
        r"NET/IB[^\n]{0,60}(?:link|port)[^\n]{0,20}(?:down|DOWN|inactive)", ("ib",)),
    "ib.ucx": ErrorText("a transfer over InfiniBand or RoCE ended with an error",
        r"mlx5: [^\n]{1,80}: got completion with error|transport retry counter exceeded|"
        r"The InfiniBand retry count between|(?:ib_mlx5|uct_ib|UCX +ERROR)[^\n]{0,100}(?:retry count exceeded|"
        r"Remote (?:access|operation)|Local protection|Input/output error)|"
        r"UCX {1,3}ERROR [^\n]{0,40}completion[^\n]{0,80}: (?:Transport|Remote|Local)|"
        r"UCX {1,3}ERROR {1,3}(?:mlx5dv_devx_obj_create|ibv_\w{1,30})\([^\n]{0,300}\bfailed|"
        r"Process failed for slice[^\n]{0,400}: (?:local|remote|transport|work|retry)", ("ib",)),
    "ib.other": ErrorText("a queue pair, a call of the verbs library or a port failed",
        r"Got completion (?:from|with)|\bibv_\w{2}|async (?:\w{1,20} )?event ?:|local catastrophic|"
        r"transport retry counter", ("ib",)),
    "plugin.ofi": ErrorText("the OFI network plugin (AWS EFA and others) reports an error",
        r"NCCL WARN NET/OFI|NET/OFI (?:Request|Couldn|Unable|Error|Failed|Invalid|Unexpected)|"
        r"fi_getinfo[^\n]{0,60}(?:empty|fail|error)|provider efa output empty|"
        r"Creating new endpoint[^\n]{0,60}failed", ("plugin",)),
    "plugin.other": ErrorText("a network plugin of NCCL reports an error",
        r"NCCL WARN NET/(?:FasTrak|GPUDirectTCPX|gIB|UCX|Plugin|MSCCLPP)|NCCL WARN Failed: UCX error|"
        r"NET/Plugin[^\n]{0,60}(?:incompatible|version mismatch)|[Ff]ailed to initialize any NET plugin|"
        r"ncclNet\w{0,20}init[^\n]{0,20}fail|NCCL_NET_PLUGIN[^\n]{0,60}(?:fail|not found)|"
        r"NET/UCX[^\n]{0,60}(?:fail|error|ERROR)", ("plugin",)),
    "plugin.mismatch": ErrorText("ranks use different network plugins",
        r"NET(?:/Plugin)? mismatch|[Nn]etwork plugin mismatch|"
        r"ranks? (?:are )?using different net(?:work)? plugins?", ("plugin",)),
    "nvlink.nvls": ErrorText("the NVSwitch refused memory for in-switch reductions (NVLS)",
        r"nvls\.cc:\d{1,5}[^\n]{0,40} NCCL WARN Cuda failure|Failed to bind NVLink SHARP|"
        r"NVLS[^\n]{0,40}Multicast (?:bind|memory)[^\n]{0,40}(?:fail|error)|"
        r"[Mm]ulticast (?:bind|object)[^\n]{0,40}[Ff]ail|NVLink SHARP[^\n]{0,60}(?:[Ff]ail|error)|"
        r"\bnvls\b[^\n]{0,40}(?:[Ff]ailed|error)|"
        r"cuMulticast(?:Create|BindMem|BindAddr|AddDevice)[^\n]{0,40}(?:fail|error)", ("nvls",)),
    "nvlink.fm": ErrorText("the Fabric Manager does not work",
        r"[Ff]abric ?[Mm]anager[^\n]{0,60}(?:not running|never|failed|fail to|dead|inactive|mismatch|not initialized)|"
        r"nvidia-fabricmanager[^\n]{0,80}(?:[Ff]ailed|dead|not running|mismatch)|"
        r"driver interface version [\d.]{1,20} don't match", ("nvls",)),
    "nvlink.fabric_state": ErrorText("the NVLink fabric has not come up",
        r"[Ff]abric [Ss]tate[^\n]{0,20}(?:[Ii]n [Pp]rogress|not [Cc]omplete)|MNNVL [^\n]{0,60}not working|"
        r"IMEX[^\n]{0,60}(?:[Ff]ailed|not (?:ready|initialized|running|available|configured)|UNAVAILABLE|DEGRADED|"
        r"version mismatch)|nvidia-imex[^\n]{0,60}(?:[Ff]ailed|dead|inactive|not running|error)|"
        r"imex-channels[^\n]{0,80}(?:No such|denied|not)|cuMemCreate[^\n]{0,120}operation not permitted|"
        r"MNNVL[^\n]{0,80}(?:[Ff]ail|not (?:supported|available|enabled))|"
        r"cuMem(?:ExportTo|ImportFrom)ShareableHandle[^\n]{0,60}(?:[Ff]ail|error)|"
        r"fabric handle[^\n]{0,40}(?:[Ff]ail|error)", ("cumem", "mnnvl")),
    "topology.file": ErrorText("NCCL could not parse the topology file that it was given",
        r"XML Parse(?: error)? : (?:expect|unexpect|untermin)|Error : XML parser is limited to", ("topology",)),
    "interface.none": ErrorText("the network interface that was asked for is not there",
        r"no socket interface found|No usable listening interface found|"
        r"Unable to find (?:address|interface) for|ifa != nullptr|[Nn]o interface found|"
        r"[Uu]nable to resolve hostname to a \(local\) address|Socket creation failed|"
        r"[Cc]all to bind failed ?: Cannot assign|NCCL_SOCKET_IFNAME[^\n]{0,60}(?:not found|no such|invalid)|"
        r"HCCL_(?:SOCKET_IFNAME|IF_IP)[^\n]{0,60}(?:not found|no such|invalid|error)|No such device \(eth|"
        r"Network interface [^\n]{1,40} (?:not found|does not exist)", ("socket",)),
    "interface.no_address": ErrorText("NCCL was given an address that is no address of a network",
        r"with family \d{1,6} is neither AF_INET", ("socket",)),
    "interface.connect": ErrorText("a connection to another rank's address could not be made",
        r"Connect to \S{1,80}(?: \S{1,20})? (?:failed|returned)[^\n]{0,20}(?:refused|route|timed out|unreachable|"
        r"assign|Invalid argument)|ocket(?:Start|Poll)Connect[^\n]{0,120}(?:refused|connection abort|route|timed out|"
        r"unreachable|assign|failed with error)|[Cc]all to connect (?:timeout|failed|to \S{1,80} failed)|"
        r"connectFullMesh failed|failed to TCP connect to a peer|Net : Connect to \S{1,80} failed", ("socket",)),
    "interface.gloo": ErrorText("a connection to another rank's address could not be made",
        r"SO_ERROR: (?:No route|Connection refused|Connection timed out)|"
        r"[Gg]loo[^\n]{0,60}(?:connect|address)[^\n]{0,40}(?:refused|No route|timed out|unreachable)", ("socket",)),
    "duplicate.nccl": ErrorText("two ranks of one job use the same GPU",
        r"Duplicate GPU detected|Multiple [Rr]anks are using the same GPU|two ranks use the same device|"
        r"(?:devices?|device ids?) (?:of|for) (?:different )?ranks[^\n]{0,30}same GPU"),
    "version.too_old": ErrorText("the driver does not fit the CUDA that the program was built with",
        r"driver on your system is too old|driver version is insufficient"),
    "version.arch": ErrorText("the program was not built for this GPU or this driver",
        r"named symbol not found|CUDA error: invalid device function|no kernel image is available|"
        r"hipErrorNoBinaryForGpu|Unable to find code object for all current devices|"
        r"HIP error: (?:invalid device function|no kernel image)|TensileLibrary[^\n]{0,60} GPU arch|"
        r"CUDA capability sm_\d{2,3}[a-z]? is not compatible|device kernel image is invalid|"
        r"PTX was compiled with an unsupported toolchain|ptxas fatal"),
    "limit.nofile": ErrorText("a process may open no more files",
        r"too many open files"),
    "limit.pids": ErrorText("a process may start no more threads or processes",
        r"can't start new thread|(?:pthread_create|BlockingIOError)[^\n]{0,200}Resource temporarily unavailable|"
        r"RuntimeError: Resource temporarily unavailable"),  # std::system_error of a thread that could not be started
}  # fmt: skip


@functools.cache
def any_of(*names: str) -> re.Pattern[str]:
    """Return a pattern that finds any of the texts in the rows `names` and ignores case."""
    return re.compile("|".join(TEXTS[name].pattern for name in names), re.IGNORECASE | re.MULTILINE)
