from __future__ import annotations

from preflight.errors import NotApplicable, NotRun, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import ranks_text
from preflight.judge.workarounds import must_have_working_default, works
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.collective import Collective
from preflight.model.facts import known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu import GpuP2p, P2pStatus
from preflight.model.hca import HcaPort, PortState
from preflight.model.parsing import version_tuple
from preflight.model.repairs import FABRIC_MANAGER
from preflight.model.transport import NVLS, Carrier, CarrierKind, Transport, path_names
from preflight.model.trial import AS_IS, TrialResult
from preflight.model.units import size_text
from preflight.search.gpus.link_speeds import expects_nvls
from preflight.search.gpus.locality import BELOW_SWITCH, NVLINK, Locality, locality_of

SOCKETS = "NET/Socket"
MOST_SHOWN = 8


@run_check("transport-below-links", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("trials", "gpu_paths"))
def transport_below_links(case: Case) -> Findings:
    """Ranks whose GPUs are connected by NVLink or a PCIe switch exchange their data over that connection.

    Yields a WARN for connected pairs with peer access whose data took a slower path. Yields a WARN for pairs on one
    node that used sockets.

    Can't see: pairs that no NCCL ring or tree connects, and whether P2P goes over NVLink or PCIe, because NCCL logs
    only P2P.
    """
    # Examples of a slower path are shared memory and the network.
    default = must_have_working_default(case)
    if len(case.nodes) != 1 or len(case.gpus) < 2:
        raise NotApplicable("it needs two or more GPUs on one node")
    if not default.transport:
        raise UnreadableFact("NCCL's log names no transport")
    slow = _slow_ways(default)
    if not slow:
        return
    locality = locality_of(case.nodes[0])
    refused = {frozenset((each.a, each.b)) for each in known_or(case.nodes[0].gpu_p2p, ()) if _is_refused(each)}
    below = {
        pair: way
        for pair, way in slow.items()
        if way == SOCKETS
        or (_promises_more(_level(locality, case, pair)) and frozenset(_gpus_of(case, pair)) not in refused)
    }
    if not below:
        return
    levels = sorted({_level(locality, case, pair) or "not known" for pair in below})
    ranks = {rank for pair in below for rank in pair}
    ways = " and ".join(sorted(set(below.values())))
    yield transport_below_links.finding(
        Severity.WARN,
        ranks_text(ranks),
        f"{len(below)} {'pairs' if len(below) > 1 else 'pair'} of ranks went over {ways}, although their GPUs have "
        f"a faster path ({', '.join(levels)})",
        "look for NCCL_P2P_DISABLE or NCCL_P2P_LEVEL in nccl.conf, and for containers that do not share host name and "
        "/dev/shm (`--ipc=host --uts=host`). Check `nvidia-smi topo -p2p r`",
        *(_evidence(locality, case, pair, way) for pair, way in sorted(below.items())[:MOST_SHOWN]),
    )


def _evidence(locality: Locality, case: Case, pair: tuple[int, int], way: str) -> Evidence:
    gpus = " and ".join(map(str, _gpus_of(case, pair)))
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


def _gpus_of(case: Case, pair: tuple[int, int]) -> list[int]:
    return [case.gpus[rank] for rank in pair if rank < len(case.gpus)]


def _promises_more(level: str) -> bool:
    """Return whether a path such as NVLink should be faster than shared memory or adapters.

    A path through a host bridge may not be faster.
    """
    return NVLINK.fullmatch(level) is not None or level in BELOW_SWITCH


def _is_refused(pair: GpuP2p) -> bool:
    """Return whether the driver refuses peer access, so that NCCL can't use the path.

    The check p2p-refused reports the refusal.
    """
    return any(isinstance(each, P2pStatus) and each is not P2pStatus.OK for each in (pair.read, pair.write))


FELL_BACK = Carrier(CarrierKind.NETWORK, "Socket")
# With any other value of these, sockets may be what the user wants.
UNCHOSEN = {"NCCL_NET": ("", "ib"), "NCCL_IB_DISABLE": ("", "0")}
PLUGIN_NETWORKS = {"NCCL_FASTRAK_": "GPUDirect-TCPXO", "NCCL_GPUDIRECTTCPX_": "GPUDirect-TCPX"}
EFA = "Unspecified"  # the link layer of its ports


@run_check(
    "silent-fallback", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("trials", "hca_ports", "nccl_conf")
)
def silent_fallback(case: Case) -> Findings:
    """If RDMA ports are active or a plugin was requested, NCCL uses them.

    Yields a WARN for each node that used sockets although a port is active. Yields a WARN for a cloud's network that
    NCCL does not use. Yields a WARN for each requested plugin that NCCL did not find.

    Can't see: networks that NCCL reaches only by a plugin and that have neither RDMA ports nor their own variables.
    """
    # Sockets are far too slow for jobs on several nodes. A cloud's network counts if its variables are set.
    default = must_have_working_default(case)
    yield from _plugins_not_loaded(default)
    yield from _cloud_networks(case)
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
            is_efa = any(port.link_layer == EFA for port in active)
            yield silent_fallback.finding(
                Severity.WARN,
                f"{node.host} network",
                f"{'ports are' if len(active) > 1 else 'a port is'} active for RDMA, but NCCL uses sockets; jobs on "
                "several nodes then get a fraction of the fabric's speed",
                "install aws-ofi-nccl and add its folder to LD_LIBRARY_PATH. The trial's NCCL log (`preflight check "
                "--keep`, lines with NET/) shows why NCCL did not use it"
                if is_efa
                else "find the reason in the trial's NCCL log (`preflight check --keep`, lines with NET/): "
                "libibverbs or /dev/infiniband is missing, `ulimit -l` is too low, a network plugin interferes, or "
                "nccl.conf sets NCCL_IB_HCA",
                Evidence("transport in use", FELL_BACK.text, f"trial {default.candidate}, NCCL's log"),
                Evidence("active ports", names, "/sys/class/infiniband"),
            )


def _plugins_not_loaded(default: TrialResult) -> Findings:
    for carrier in default.transport:
        if carrier.kind is CarrierKind.NOT_LOADED:
            kind, _, name = carrier.name.partition(" ")
            variable = f"NCCL_{kind}_PLUGIN"
            yield silent_fallback.finding(
                Severity.WARN,
                variable,
                f"{variable} asks for the plugin {name}, but NCCL did not find it and continued without it",
                f"install the plugin and add its folder to LD_LIBRARY_PATH, or `unset {variable}`",
                Evidence("NCCL's log", carrier.text, f"trial {default.candidate}"),
            )


def _cloud_networks(case: Case) -> Findings:
    """Yield a WARN for each cloud network that NCCL did not use although a trial set the network's variables.

    NCCL used sockets instead.
    """
    for trial in case.trials:
        names = [name for name, _ in trial.trial_env]
        for prefix, network in PLUGIN_NETWORKS.items():
            if works(trial) and FELL_BACK in trial.transport and any(name.startswith(prefix) for name in names):
                yield silent_fallback.finding(
                    Severity.WARN,
                    network,
                    f"{prefix}* is set for {network}, but NCCL used sockets; jobs on several nodes then get a "
                    "fraction of the network's speed",
                    f"add the folder of {network}'s plugin to LD_LIBRARY_PATH and start its service, as the cloud's "
                    f"guide says. The trial's NCCL log (`preflight check --keep`, lines with NET/) shows why",
                    Evidence("transport in use", FELL_BACK.text, f"trial {trial.candidate}, NCCL's log"),
                )
        if trial.candidate == AS_IS:
            return


NVLS_ENABLE = "NCCL_NVLS_ENABLE"
NVLS_LOGGED_SINCE = (2, 18)  # `NVLS comm 0x... headRank`
NVLS_BYTES = Bound(
    32 << 20, "bytes or more in an all_reduce",
    "at this size and above, NCCL 2.27 and 2.32 choose NVLS on 8 H100",
    JUDGMENT,
    "too low: the check warns although NCCL uses no NVLS at such sizes; too high: fewer runs are judged",
)  # fmt: skip
NVLS_CUDA = (12, 1)  # the oldest driver that can do it (facts 9)


@run_check(
    "nvls-absent",
    blame=Blame.FABRIC,
    unseen=Unseen.NOTHING,
    reads=("trials", "gpu_paths", "driver", "nccl_conf"),
    bounds=(NVLS_BYTES,),
)
def nvls_absent(case: Case) -> Findings:
    """If NVSwitches can compute all-reduces (NVLink SHARP), NCCL uses NVLink SHARP.

    Yields a WARN if these GPUs can use NVLink SHARP but the run with default settings did not.

    Can't see: NCCL before 2.18, and runs without an all_reduce of 32 MiB or more.
    """
    # Without NVLink SHARP, an HGX H100 loses a quarter of its all-reduce speed. If the Fabric Manager refuses the
    # memory, NCCL since 2.27.3 continues silently.
    default = must_have_working_default(case)
    if not case.wants_gpus or case.links is None or len(case.nodes) != 1:
        raise NotApplicable("it tests the GPUs of one node")
    node = case.nodes[0]
    if not expects_nvls(case.links, node, case.gpus):
        raise NotApplicable("NCCL does not use NVLS with these GPUs")
    if version_tuple(known(known(node.driver).cuda)) < NVLS_CUDA:
        raise NotApplicable("the driver is too old for NVLS")
    torch = known(known(node.software).torch)
    if version_tuple(known(torch.nccl)) < NVLS_LOGGED_SINCE:
        raise NotApplicable("this NCCL does not report NVLS")
    if NVLS_ENABLE in {entry.name for entry in known(node.nccl_conf)} or NVLS_ENABLE in dict(default.trial_env):
        raise NotApplicable(f"{NVLS_ENABLE} is set")
    if not default.transport:
        raise UnreadableFact("NCCL's log names no transport")
    reduced = [each for each in default.results if each.collective is Collective.ALL_REDUCE]
    if not any(each.size_bytes >= NVLS_BYTES.whole for each in reduced):
        raise NotRun(
            f"no all_reduce of {size_text(NVLS_BYTES.whole)} or more was measured, and NCCL sets NVLS up at its "
            "first use"
        )
    if NVLS not in default.transport:
        yield nvls_absent.finding(
            Severity.WARN,
            f"{node.host} NVLS",
            f"NCCL set up no NVLS, although {len(case.gpus)} GPUs behind NVSwitches can use it, so large all-reduces "
            "lose about a quarter of their speed",
            "find the reason in the trial's NCCL log (`preflight check --keep`): `NVLS multicast support is not "
            f"available`, or `Failed to bind NVLink SHARP`. Then {FABRIC_MANAGER}",
            Evidence("transports", ", ".join(path_names(default.transport)) or "none", "trial default, NCCL's log"),
        )


def _carries_data(port: HcaPort) -> bool:
    return port.state is PortState.ACTIVE and port.link_layer in ("InfiniBand", "Ethernet", EFA)


def _was_asked_for(default: TrialResult, case: Case) -> bool:
    """Return whether the user chose sockets: by a variable of the trial, or by an entry in a file that NCCL reads."""
    said = [(e.name, e.value) for node in case.nodes if isinstance(node.nccl_conf, tuple) for e in node.nccl_conf]
    said += default.trial_env
    return any(value.strip().lower() not in UNCHOSEN.get(name, (value.strip().lower(),)) for name, value in said)
