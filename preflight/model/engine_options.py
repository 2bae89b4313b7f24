"""Options of serving engines that work around faults of the node.

preflight has not tried these options.
"""
# The NCCL settings that preflight tries do not affect the engines' own all-reduce.

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from preflight.model.word import Word


class Engine(Word):
    """A serving engine. The value of a member is the engine's name in `--for` and in the table of launchers."""

    VLLM = "vllm"
    SGLANG = "sglang"


class Fault(Word):
    """A kind of fault of the node that an engine's options may avoid."""

    P2P = "p2p"  # data is lost in direct copies between two GPUs
    MULTICAST = "multicast"  # NVLink SHARP or the fabric between nodes does not work
    INTERFACE = "interface"  # the interface that is taken by default does not lead to the other nodes


SETTINGS = {
    "NCCL_P2P_DISABLE": Fault.P2P, "NCCL_P2P_LEVEL": Fault.P2P, "NCCL_NVLS_ENABLE": Fault.MULTICAST,
    "NCCL_MNNVL_ENABLE": Fault.MULTICAST, "NCCL_SOCKET_IFNAME": Fault.INTERFACE, "GLOO_SOCKET_IFNAME": Fault.INTERFACE,
}  # fmt: skip
CAUSES = {
    "p2p_broken": Fault.P2P, "nvlink_or_fabric_manager": Fault.MULTICAST, "wrong_socket_interface": Fault.INTERFACE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineOption:
    """An option or variable of an engine that works around a fault."""

    engine: Engine
    fault: Fault
    option: str
    why: str
    versions: str  # in whose sources the option was read
    source: str

    @property
    def step(self) -> str:
        """The option as one line, with the reason and the remark that the option was not tried."""
        return f"{self.engine.value}: {self.option}   # {self.why} (not tried; {self.engine.value} {self.versions})"


VLLM_VERSIONS, SGLANG_VERSIONS = "0.11.0, 0.22.0, 0.33.0", "0.5.5, 0.5.14, 0.5.23"
# The most important first.
ENGINE_OPTIONS = (
    EngineOption(
        Engine.VLLM, Fault.P2P, "--disable-custom-all-reduce",
        "its own all-reduce copies directly and ignores NCCL_P2P_DISABLE", VLLM_VERSIONS,
        "vllm/distributed/device_communicators/custom_all_reduce.py; vllm pull request 45004",
    ),
    EngineOption(
        Engine.VLLM, Fault.P2P, "export VLLM_ALLREDUCE_USE_SYMM_MEM=0", "symmetric memory probably copies directly too",
        VLLM_VERSIONS, "vllm/envs.py; vllm issue 51513; [unverified] what its kernels do was not read",
    ),
    EngineOption(
        Engine.VLLM, Fault.P2P, "export VLLM_ALLREDUCE_USE_FLASHINFER=0", "the all-reduce of FlashInfer copies "
        "directly too",
        "0.22.0 (off by default), 0.33.0", "vllm/envs.py; vllm pull request 47219",
    ),
    EngineOption(
        Engine.VLLM, Fault.P2P, """--compilation-config '{"pass_config": {"fuse_allreduce_rms": false}}'""",
        "kernels that fuse all-reduce and norm copy directly too", "0.22.0, 0.33.0",
        "vllm/utils/argparse_utils.py; vllm pull requests 43616, 47544",
    ),
    EngineOption(
        Engine.VLLM, Fault.P2P, "export VLLM_SKIP_P2P_CHECK=0",
        "vLLM then tests a copy once; by default it trusts the driver", VLLM_VERSIONS, "vllm/envs.py",
    ),
    EngineOption(
        Engine.VLLM, Fault.MULTICAST, "export VLLM_ALLREDUCE_USE_SYMM_MEM=0",
        "its symmetric memory probably uses the same multicast", VLLM_VERSIONS,
        "vllm/envs.py; [unverified] what its kernels do was not read",
    ),
    EngineOption(
        Engine.VLLM, Fault.MULTICAST, "export VLLM_ALLREDUCE_USE_FLASHINFER=0",
        "on several nodes FlashInfer uses MNNVL even if there is none", "0.22.0 (off by default), 0.33.0",
        "vllm/envs.py; vllm issue 51986",
    ),
    EngineOption(
        Engine.VLLM, Fault.INTERFACE, "export VLLM_HOST_IP=ADDRESS",
        "use that interface's address, which differs on each node; set GLOO_SOCKET_IFNAME like NCCL_SOCKET_IFNAME",
        "0.22.0, 0.33.0", "vllm/envs.py",
    ),
    EngineOption(
        Engine.SGLANG, Fault.P2P, "--disable-custom-all-reduce",
        "its own all-reduce, like vLLM's, probably copies directly and ignores NCCL_P2P_DISABLE", SGLANG_VERSIONS,
        "sglang/srt/server_args.py; sglang pull request 1148; [unverified] its kernels were not read",
    ),
    EngineOption(
        Engine.SGLANG, Fault.P2P, "--enforce-disable-flashinfer-allreduce-fusion",
        "kernels that fuse all-reduce and norm probably copy directly too", "0.5.14, 0.5.23",
        "sglang/srt/server_args.py; [unverified] its kernels were not read",
    ),
    EngineOption(
        Engine.SGLANG, Fault.P2P, "--enable-p2p-check", "by default SGLang assumes that direct access is allowed",
        SGLANG_VERSIONS, "sglang/srt/server_args.py, arg_groups/fields/parallel.py",
    ),
    EngineOption(
        Engine.SGLANG, Fault.MULTICAST, "leave out --enable-nccl-nvls and --enable-symm-mem",
        "both use the multicast of NVLink", SGLANG_VERSIONS, "sglang/srt/server_args.py, arg_groups/fields/exec_.py",
    ),
    EngineOption(
        Engine.SGLANG, Fault.INTERFACE, "--dist-init-addr ADDRESS:PORT",
        "use node 0's address on that interface; set GLOO_SOCKET_IFNAME like NCCL_SOCKET_IFNAME", SGLANG_VERSIONS,
        "sglang/srt/server_args.py; sglang issue 3514",
    ),
)  # fmt: skip


def options_for(engine: Engine, faults: Collection[Fault]) -> tuple[EngineOption, ...]:
    """Return the options of `engine` that work around any of `faults`, each option once."""
    found = [each for each in ENGINE_OPTIONS if each.engine is engine and each.fault in faults]
    return tuple({each.option: each for each in reversed(found)}.values())[::-1]
