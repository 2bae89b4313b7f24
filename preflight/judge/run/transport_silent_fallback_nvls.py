from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import ranks_text
from preflight.judge.workarounds import must_have_working_default
from preflight.model.facts import known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.hca import HcaPort, PortState
from preflight.model.parsing import version_tuple
from preflight.model.repairs import FABRIC_MANAGER
from preflight.model.transport import NVLS, Carrier, CarrierKind, Transport, path_names
from preflight.model.trial import TrialResult
from preflight.search.gpus.link_speeds import expects_nvls
from preflight.search.gpus.locality import BELOW_SWITCH, NVLINK, Locality, locality_of

SOCKETS = "NET/Socket"
MOST_SHOWN = 8


@run_check("transport-below-links", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("trials", "gpu_paths"))
def transport_below_links(case: Case) -> Findings:
    """Ranks whose GPUs NVLink or a PCIe switch joins exchange their data over it.

    Yields a WARN for the pairs that NVLink or a common PCIe switch joins and whose data took a slower way all the same:
    shared memory, or the network.

    Can't see: pairs that a ring or tree of NCCL's does not connect, and NVLink next to PCIe, which NCCL both calls P2P.
    """
    default = must_have_working_default(case)
    if len(case.nodes) != 1 or len(case.gpus) < 2:
        raise NotApplicable("it is about two GPUs or more of one node")
    if not default.transport:
        raise UnreadableFact("NCCL's log names no transport")
    slow = _slow_ways(default)
    if not slow:
        return
    locality = locality_of(case.nodes[0])
    below = {pair: way for pair, way in slow.items() if _promises_more(_level(locality, case, pair), way)}
    if not below:
        return
    levels = sorted({_level(locality, case, pair) or "not known" for pair in below})
    ranks = {rank for pair in below for rank in pair}
    ways = " and ".join(sorted(set(below.values())))
    yield transport_below_links.finding(
        Severity.WARN,
        ranks_text(ranks),
        f"{len(below)} {'pairs' if len(below) > 1 else 'pair'} of ranks went over {ways}, though their GPUs "
        f"are joined more closely ({', '.join(levels)})",
        "look for NCCL_P2P_DISABLE or NCCL_P2P_LEVEL in nccl.conf, for containers that share neither host name nor "
        "/dev/shm (`--ipc=host --uts=host`), and at `nvidia-smi topo -p2p r`",
        *(_evidence(locality, case, pair, way) for pair, way in sorted(below.items())[:MOST_SHOWN]),
    )


def _evidence(locality: Locality, case: Case, pair: tuple[int, int], way: str) -> Evidence:
    gpus = " and ".join(str(case.gpus[rank]) for rank in pair if rank < len(case.gpus))
    shown = f"{way}; GPUs {gpus}: {_level(locality, case, pair) or '?'}"
    return Evidence(f"ranks {pair[0]} and {pair[1]}", shown, "trial default, NCCL's log")


def _slow_ways(trial: TrialResult) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    for carrier in trial.transport:
        if carrier.transport in (Transport.SHM, Transport.NET) and carrier.is_pair:
            a, b = sorted(carrier.ranks)
            found[a, b] = SOCKETS if carrier.name.startswith(SOCKETS) else carrier.transport.value
    return found


def _level(locality: Locality, case: Case, pair: tuple[int, int]) -> str:
    return locality.level(case.gpus[pair[0]], case.gpus[pair[1]]) if max(pair) < len(case.gpus) else ""


def _promises_more(level: str, way: str) -> bool:
    """Return whether a path is better than the used transport.

    Any path is better than sockets, but adapters may serve well between CPUs.
    """
    return way == SOCKETS or NVLINK.fullmatch(level) is not None or level in BELOW_SWITCH


FELL_BACK = Carrier(CarrierKind.NETWORK, "Socket")
CHOSEN = ("NCCL_NET", "NCCL_IB_DISABLE")  # sockets were asked for


@run_check(
    "silent-fallback", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("trials", "hca_ports", "nccl_conf")
)
def silent_fallback(case: Case) -> Findings:
    """Where RDMA ports are active, NCCL uses them.

    Sockets in their place are fast enough on one node and ruinous on several. Yields a WARN for each node with an
    active port whose default trial took sockets as its network.

    Can't see: EFA and other networks that NCCL reaches by a plugin only.
    """
    default = must_have_working_default(case)
    active_of = {node.host: [port for port in known(node.hca_ports) if _carries_data(port)] for node in case.nodes}
    if not any(active_of.values()):
        raise NotApplicable("no RDMA port is active")
    if _was_asked_for(default, case):
        raise NotApplicable("sockets were asked for")
    if not case.wants_gpus:
        raise NotApplicable("NCCL is not used")
    if not default.transport:
        raise UnreadableFact("NCCL's log names no transport")
    for node in case.nodes if FELL_BACK in default.transport else ():
        active = active_of[node.host]
        if active:
            names = ", ".join(f"{port.hca}:{port.port} ({port.link_layer})" for port in active)
            yield silent_fallback.finding(
                Severity.WARN,
                f"{node.host} network",
                f"{'ports are' if len(active) > 1 else 'a port is'} active for RDMA, and NCCL takes sockets: "
                "no harm on one node, a fraction of the fabric's speed on several",
                "see why in the trial's NCCL log (`preflight check --keep`, lines with NET/): libibverbs missing, "
                "no /dev/infiniband, `ulimit -l`, a network plugin in the way, NCCL_IB_HCA in nccl.conf",
                Evidence("took", FELL_BACK.text, f"trial {default.candidate}, NCCL's log"),
                Evidence("active ports", names, "/sys/class/infiniband"),
            )


NVLS_ENABLE = "NCCL_NVLS_ENABLE"
NVLS_LOGGED_SINCE = (2, 18)  # `NVLS comm 0x... headRank`
NVLS_CUDA = (12, 1)  # the oldest driver that can do it (facts 9)


@run_check(
    "nvls-absent", blame=Blame.FABRIC, unseen=Unseen.NOTHING, reads=("trials", "gpu_paths", "driver", "nccl_conf")
)
def nvls_absent(case: Case) -> Findings:
    """Where NVSwitches can sum all-reduces (NVLink SHARP), NCCL has them do it.

    Without it an HGX H100 loses a quarter of its all-reduce: NCCL goes on in silence from 2.27.3 where the Fabric
    Manager refuses the memory for it. Yields a WARN where it is expected and the default's trial did not have it.

    Can't see: NCCL before 2.18, and whether NCCL then chooses it for a given size.
    """
    default = must_have_working_default(case)
    if not case.wants_gpus or case.links is None or len(case.nodes) != 1:
        raise NotApplicable("it is about the GPUs of one node")
    node = case.nodes[0]
    if not expects_nvls(case.links, node, case.gpus):
        raise NotApplicable("NCCL takes no NVLS with these GPUs")
    if version_tuple(known(known(node.driver).cuda)) < NVLS_CUDA:
        raise NotApplicable("the driver is too old for NVLS")
    torch = known(known(node.software).torch)
    if version_tuple(known(torch.nccl)) < NVLS_LOGGED_SINCE:
        raise NotApplicable("this NCCL does not tell of NVLS")
    if NVLS_ENABLE in {entry.name for entry in known(node.nccl_conf)} or NVLS_ENABLE in dict(default.trial_env):
        raise NotApplicable(f"{NVLS_ENABLE} is set")
    if not default.transport:
        raise UnreadableFact("NCCL's log names no transport")
    if NVLS not in default.transport:
        yield nvls_absent.finding(
            Severity.WARN,
            f"{node.host} NVLS",
            f"NCCL set up no NVLS, which {len(case.gpus)} GPUs behind NVSwitches can have: large all-reduces lose "
            "about a quarter of their speed",
            "see why in the trial's NCCL log (`preflight check --keep`): `NVLS multicast support is not available`, or "
            f"`Failed to bind NVLink SHARP`; {FABRIC_MANAGER}",
            Evidence("transports", ", ".join(path_names(default.transport)) or "none", "trial default, NCCL's log"),
        )


def _carries_data(port: HcaPort) -> bool:
    return port.state is PortState.ACTIVE and port.link_layer in ("InfiniBand", "Ethernet")


def _was_asked_for(default: TrialResult, case: Case) -> bool:
    """Return whether a setting chose sockets: in the trial itself, or in a file that NCCL reads."""
    files = {entry.name for node in case.nodes if isinstance(node.nccl_conf, tuple) for entry in node.nccl_conf}
    return any(name in files or name in dict(default.trial_env) for name in CHOSEN)
