"""How far two GPUs are apart for NCCL, and whether it then uses P2P or even a network card between them. Pure.

Rules: NCCL's paths.cc (ncclTopoCheckP2p, ncclTopoCheckNet) and topo.h of 2.21 to 2.30 (facts 1.1, 2.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Environ = Mapping[str, str]
Version = tuple[int, ...]
Facts = Mapping[str, Any]

LEVELS = {"LOC": 0, "NVL": 1, "NVB": 2, "C2C": 3, "PIX": 4, "PXB": 5, "P2C": 6, "PXN": 7, "PHB": 8, "SYS": 9}
LEGACY_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")
CUDA_ERROR = 1
# GB/s between two CPUs: NCCL's figures for AMD, Intel from Sapphire Rapids on (SRP) and before (SKL).
AMD_GB_S, SAPPHIRE_RAPIDS_GB_S, SKYLAKE_GB_S = 16.0, 22.0, 10.0
SAPPHIRE_RAPIDS = re.compile(r"Xeon.*\b[3-8][45]\d\d")
PCIE_GB_S = {8.0: 12.0, 16.0: 24.0, 32.0: 48.0}  # of 16 lanes, by GT/s


class Failure(Exception):
    """NCCL gives up: the source line, the text of its WARN line, and the ncclResult_t."""

    def __init__(self, source: str, text: str, result: int) -> None:
        super().__init__(text)
        self.source, self.text, self.result = source, text, result


def integer(env: Environ, name: str, default: int) -> int:
    """Return what strtoll in base 0 makes of a variable; an empty one means the default, a word means 0."""
    text = env.get(name, "")
    if not text:
        return default
    found = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text, re.ASCII)
    if found is None:
        return 0
    digits = found[2]
    number = int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10)
    return -number if found[1] == "-" else number


def level(word: str) -> int:
    """Return NCCL's distance for a word of `nvidia-smi topo -m`; NCCL has no NODE, its CPUs are NUMA nodes."""
    return LEVELS["NVL"] if word.startswith("NV") else LEVELS[{"NODE": "PHB"}.get(word, word)]


def asked_level(text: str, default: int) -> int:
    """Return the distance that a variable asks for, by its name or by NCCL's old number (ncclGetLevel)."""
    if text in LEVELS:
        return LEVELS[text]
    if not re.match(r"\d", text, re.ASCII):
        return default
    return LEVELS[LEGACY_LEVELS[min(integer({"": text}, "", 0), len(LEGACY_LEVELS) - 1)]]


class Between:
    """How the GPUs of the ranks may reach each other directly."""

    def __init__(self, node: Facts, env: Environ, version: Version, gpus: tuple[int, ...]) -> None:
        self._node, self._gpus = node, gpus
        self._paths = {(each["a"], each["b"]): each["level"] for each in node["gpu_paths"] or ()}
        self._status = {(each["a"], each["b"]): each for each in node["gpu_p2p"] or ()}
        self._devices = {each["bdf"]: each for each in node.get("pci") or ()}
        self._trusts = integer(env, "NCCL_IGNORE_DISABLED_P2P", 0) == 2
        self._most = _p2p_level(node, env, version, len(gpus))

    def peer(self, a: int, b: int) -> str:
        """Return NVL or PCI where NCCL uses P2P between two GPUs, else ""; Failure where the driver denies NVLink."""
        pair = (min(a, b), max(a, b))
        far = self.far(*pair)
        if far > self._most:
            return ""
        if self._denied(pair):
            if far == LEVELS["NVL"]:
                told = f"P2P is disabled between NVLINK connected GPUs {pair[0]} and {pair[1]}. This should not be the "
                raise Failure("graph/paths.cc:386", f"{told}case given their connectivity, and is probably due to a "
                              "hardware issue. If you still want to proceed, you can set NCCL_IGNORE_DISABLED_P2P=1.",
                              CUDA_ERROR)  # fmt: skip
            return ""
        return "NVL" if far <= LEVELS["C2C"] else "PCI"

    def far(self, a: int, b: int) -> int:
        """Return the distance of two GPUs: over NVLink as NVML has it, over PCIe by the tree as NCCL walks it."""
        word = self._paths.get((min(a, b), max(a, b))) or "SYS"
        one, other = (self._devices.get(self._gpu(each)["bdf"] or "") for each in (a, b))
        if word.startswith("NV") or one is None or other is None or not (one["parents"] and other["parents"]):
            return level(word)
        return level(common(one, other))

    def card_is_faster(self, a: int, b: int, cards: Mapping[str, float]) -> bool:
        """Tell whether NCCL takes the network inside the node.

        That is where both GPUs have a card within PXB that is faster than their own path; `cards` has GB/s by address.
        """
        if self.far(a, b) < LEVELS["SYS"]:
            return False  # as wide as the slot of any card
        model = (self._node["system"] or {}).get("cpu_model") or ""
        intel = SAPPHIRE_RAPIDS_GB_S if SAPPHIRE_RAPIDS.search(model) else SKYLAKE_GB_S
        own = AMD_GB_S if "AMD" in model else intel
        return min(self._to_a_card(each, cards) for each in (a, b)) > own

    def denied(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs within the level whose P2P the driver denies."""
        pairs = [(a, b) for a in self._gpus for b in self._gpus if a < b]
        return tuple(pair for pair in pairs if self.far(*pair) <= self._most and self._denied(pair))

    def _to_a_card(self, gpu: int, cards: Mapping[str, float]) -> float:
        """Return GB/s from a GPU to the fastest card below the same switches; the slots count too."""
        mine = self._devices.get(self._gpu(gpu)["bdf"] or "")
        near = [0.0]
        for address, speed in cards.items():
            card = self._devices.get(address)
            if mine and card and level(common(mine, card)) <= LEVELS["PXB"]:
                slots = (PCIE_GB_S.get(each["speed_max_gt_s"] or 0.0, 0.0) for each in (mine, card))
                near.append(min(speed, *slots))
        return max(near)

    def _gpu(self, number: int) -> Facts:
        return next(gpu for gpu in self._node["gpus"] or () if gpu["nvml_index"] == number)

    def _denied(self, pair: tuple[int, int]) -> bool:
        said = self._status.get(pair, {})
        return not self._trusts and not said.get("read") == said.get("write") == "ok"


def common(one: Facts, other: Facts) -> str:
    """Return how near two devices of the tree are: parents are the root port and, of each switch, its two ports."""
    if one["numa_node"] != other["numa_node"]:
        return "SYS"
    upstream = [each["parents"][1::2] for each in (one, other)]
    shared = sum(1 for a, b in zip(*upstream, strict=False) if a == b)
    if not shared:
        return "PHB"
    return "PIX" if all(len(each) == shared for each in upstream) else "PXB"


def _p2p_level(node: Facts, env: Environ, version: Version, gpus: int) -> int:
    if integer(env, "NCCL_P2P_DISABLE", 0) == 1:
        return LEVELS["LOC"]
    asked = asked_level(env.get("NCCL_P2P_LEVEL", ""), -1)
    if asked >= 0:
        return asked
    system = node["system"] or {}
    is_amd = "AMD" in (system.get("cpu_model") or "")
    if version >= (2, 23):
        return LEVELS["SYS"] if is_amd and gpus <= 2 else LEVELS["PXB"]
    return LEVELS["SYS"] if is_amd else LEVELS["PXB"]
