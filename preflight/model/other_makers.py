"""GPUs and accelerators of makers other than NVIDIA, and the makers' test tools.

The module also says how to recognize the devices. Only devices made for computing count.
"""
# The PCI class and vendor alone do not distinguish a display controller from an accelerator. The identities come from
# amdgpu_drv.c and include/drm/intel/pciids.h (Linux), from pci.ids and from Google's tpu-info.

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.model.facts import NodeFacts, OtherDevice
from preflight.model.gap import Gap, known_or

DISPLAY = re.compile(r"03..:....")


@dataclass(frozen=True, slots=True)
class OtherMaker:
    """A family of GPUs or accelerators that NCCL does not support, and how to recognize its devices."""

    what: str  # one of them, as a page calls it
    vendor: str  # of the PCI device, as the kernel spells it
    computes: re.Pattern[str]  # PCI class and device, "1200:74a1", of those that are made for computing
    file: re.Pattern[str]  # name below /dev of one device
    torch: str  # the torch that is built for them; "" where torch/version.py does not tell
    tools: str  # an instruction


NO_FILE = re.compile(r"(?!)")  # /dev/kfd is there on any laptop with an AMD APU, /dev/accel/ on any with an Intel NPU
OTHER_MAKERS = (
    OtherMaker(
        "AMD GPU", "0x1002",
        re.compile(r"1200:....|03..:(?:66a[01]|738[8ce]|7390|740[8cf]|7410)"),  # MI300 on; MI50 to MI250X
        NO_FILE, "ROCm",
        "test them with AMD's own tools: rccl-tests, the ROCm Validation Suite (`rvs`) or Primus' preflight",
    ),
    OtherMaker(
        "Intel GPU", "0x8086",
        re.compile(r"03..:(?:0b69|0b6e|0bd[0-9ab]|0be[015]|56c[012])"),  # Data Center GPU Max and Flex
        NO_FILE, "XPU",
        "test them with Intel's own tools: `xpu-smi diag` and the benchmark of oneCCL",
    ),
    OtherMaker(
        "Ascend NPU", "0x19e5", re.compile(r"1200:d..."), re.compile(r"davinci[0-9]+"), "",
        "test them with Huawei's own tools: `npu-smi info`, `hccn_tool` and hccl_test",
    ),
    OtherMaker(
        "Gaudi accelerator", "0x1da3", re.compile(r"1200:...."), re.compile(r"hl[0-9]+"), "",
        "test them with Intel's own tools for Gaudi: `hl-smi` and hccl_demo",
    ),
    OtherMaker(
        "TPU", "0x1ae0", re.compile(r"....:(?:0027|0056|005e|0062|0063|006f|0076)"), re.compile(r"accel[0-9]+"), "",
        "test them with Google's own tool: `tpu-info`",
    ),
)  # fmt: skip


def other_gpus(node: NodeFacts) -> tuple[OtherDevice, ...]:
    """Return the accelerators of other makers than NVIDIA.

    If torch is built for a maker, the maker's display controllers are included.
    """
    software = node.software
    torch = None if isinstance(software, Gap) or isinstance(software.torch, Gap) else software.torch
    wanted = {each.what for each in OTHER_MAKERS if torch and each.torch and torch.other_build.startswith(each.torch)}
    return tuple(each for each in known_or(node.other_devices, ()) if each.computes or each.what in wanted)


def called(devices: tuple[OtherDevice, ...]) -> str:
    """Return the number of devices of each kind, such as `8 AMD GPUs`.

    Device files are not counted if any device is on the PCI bus.
    """
    # A device on the PCI bus and a device file may belong to the same device.
    on_bus = [each for each in devices if each.is_on_bus]
    counted = on_bus or devices
    names = dict.fromkeys(each.what for each in counted)
    counts = {what: sum(each.what == what for each in counted) for what in names}
    return " and ".join(f"{count} {what}{'s' * (count > 1)}" for what, count in counts.items())
