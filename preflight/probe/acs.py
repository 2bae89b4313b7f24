"""Read a bridge's ACS control word from its config space (include/uapi/linux/pci_regs.h, PCIe spec 7.7.11)."""

from __future__ import annotations

from preflight.errors import UnreadableFact

UNPRIVILEGED_BYTES = 64  # what the kernel gives without CAP_SYS_ADMIN (pci-sysfs.c, pci_read_config)
EXTENDED = 0x100  # where extended capabilities begin; a conventional device has none
ACS_ID = 0x000D
SERIAL_ID = 0x0003  # a network card's holds its MAC address
MOST_CAPABILITIES = 96

# In bit order, as `lspci -vvv` names them. ReqRedir, CmpltRedir and EgressCtrl send peer traffic through the root.
CONTROLS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def parse_acs(config: bytes) -> tuple[str, ...]:
    """Return the controls that are on; none where the device has no ACS. UnreadableFact where root is needed."""
    if len(config) <= UNPRIVILEGED_BYTES:
        raise UnreadableFact(f"config space: only {len(config)} bytes are readable without root; ACS lies beyond 256")
    offset = _capability(config, ACS_ID)
    if offset == 0:
        return ()
    word = int.from_bytes(config[offset + 6 : offset + 8], "little")
    return tuple(name for bit, name in enumerate(CONTROLS) if word >> bit & 1)


def without_serial(config: bytes) -> bytes:
    """Return a config space with its device serial number as zeros."""
    offset = _capability(config, SERIAL_ID)
    return config if offset == 0 else config[: offset + 4] + bytes(8) + config[offset + 12 :]


def _capability(config: bytes, identity: int) -> int:
    """Return where an extended capability begins, 0 where the device has none."""
    offset = EXTENDED
    for _ in range(MOST_CAPABILITIES):
        header = int.from_bytes(config[offset : offset + 4], "little")
        if offset < EXTENDED or offset + 12 > len(config) or header in (0, 0xFFFFFFFF):
            return 0
        if header & 0xFFFF == identity:
            return offset
        offset = header >> 20 & 0xFFC
    return 0
