"""Replace names that identify a machine or its users, and give equal names equal replacements."""
# The module replaces host names, MAC addresses, GUIDs, GIDs, IP addresses, UUIDs, serials, container ids, home
# directories and user names. Serials, user names and the names of other hosts match no pattern. These values are
# replaced only under JSON keys and variables that are known to hold them, such as `serial`, `user` and `NCCL_COMM_ID`.

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Any

HEX = "[0-9a-fA-F]"
LONG_HARDWARE = re.compile(rf"(?<![\w:])(?:{HEX}{{2}}:){{19}}{HEX}{{2}}(?![\w:])")  # IPoIB
MAC = re.compile(
    rf"(?<![\w:-])(?:{HEX}{{2}}:){{5}}{HEX}{{2}}(?![\w:])|(?<![\w-])(?:{HEX}{{2}}-){{5}}{HEX}{{2}}(?![\w-])"
)
MAC_NAME = re.compile(rf"(?<![a-z0-9])(en|wl|ww|ib)x({HEX}{{12}})(?![0-9a-zA-Z])")  # systemd's names by MAC
UUID = re.compile(rf"(?<!{HEX}){HEX}{{8}}([-_]){HEX}{{4}}\1{HEX}{{4}}\1{HEX}{{4}}\1{HEX}{{12}}(?!{HEX})")
LONG_ID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{32,64}(?![0-9a-zA-Z])")
GUID = re.compile(rf"(?<![\w:.])(?:{HEX}{{4}}:){{3}}{HEX}{{4}}(?![\w:.])")
IPV6 = re.compile(rf"(?<![\w:.])(?:{HEX}{{0,4}}:){{2,7}}{HEX}{{0,4}}(?![\w:.])")
IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")

KEPT_V4 = tuple(ipaddress.IPv4Network(net) for net in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3"))
LINK_LOCAL_V4 = ipaddress.IPv4Network("169.254.0.0/16")
LOW_64 = (1 << 64) - 1
FE80 = 0xFE80 << 112
MAPPED_V4 = 0xFFFF << 32  # ::ffff:a.b.c.d, as RoCE's GIDs hold IPv4 addresses
NEW_V4 = int(ipaddress.IPv4Address("198.18.0.0"))
NEW_LINK_LOCAL_V4 = int(ipaddress.IPv4Address("169.254.0.0"))
NEW_V6 = 0x20010DB8 << 96
HOST = "host-1"
NEW_HOME = "/home/user-1"

# Values of these keys are names of persons or machines, whatever they look like.
NAMED_KEYS = {"serial": "serial", "board_serial": "serial", "user": "user", "username": "user"}
VARIABLES_OF_HOSTS = frozenset({"NCCL_COMM_ID"})
VERSIONS = frozenset({"software"})  # version numbers of four parts look like IPv4 addresses


@dataclass(slots=True)
class Scrubber:
    """A filter that replaces identifying values in texts. Equal values get equal replacements."""

    hosts: tuple[str, ...] = ()
    home: str = ""
    numbers: dict[tuple[str, object], int] = field(default_factory=dict)

    def value(self, value: Any, key: str = "") -> Any:
        """Return the JSON value `value` with identifying values replaced in all its texts.

        `key` is the JSON key of the value. For some keys, such as `serial` and `user`, the whole text is replaced.
        """
        if isinstance(value, dict):
            return {self.text(name): self.value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in NAMED_KEYS and value:
            return f"{NAMED_KEYS[key]}-{self._number(NAMED_KEYS[key], value)}"
        if key in VARIABLES_OF_HOSTS:
            return re.sub(r"^[^:\[\]]+", HOST, self.text(value))
        return self.text(value)

    def text(self, text: str, *, with_host: bool = True) -> str:
        """Return `text` with replacements for all identifying values that match a pattern.

        The home directory is also replaced. The host's own names are replaced unless `with_host` is false.
        """
        text = self.home_only(text)
        for host in self.hosts if with_host else ():
            text = re.sub(rf"(?<![A-Za-z0-9_.-]){re.escape(host)}(?![A-Za-z0-9_-])", HOST, text, flags=re.IGNORECASE)
        text = UUID.sub(self._uuid, text)
        text = LONG_ID.sub(self._long_id, text)
        text = LONG_HARDWARE.sub(lambda m: self._mac(m[0], 20), text)
        text = MAC.sub(lambda m: self._mac(m[0], 6), text)
        text = MAC_NAME.sub(lambda m: f"{m[1]}x02{self._number('mac', m[2].lower()):010x}", text)
        text = IPV6.sub(lambda m: self._ipv6(m[0]), text)
        text = GUID.sub(lambda m: self._guid(m[0]), text)
        return IPV4.sub(lambda m: self._ipv4(m[0]), text)

    def home_only(self, text: str) -> str:
        """Return `text` with only the home directory replaced."""
        return re.sub(rf"{re.escape(self.home)}(?![\w.-])", NEW_HOME, text) if self.home else text

    def _number(self, kind: str, value: object) -> int:
        """Return the number of `value` among the values of its kind, from 1."""
        if (kind, value) not in self.numbers:
            self.numbers[kind, value] = 1 + sum(1 for each, _ in self.numbers if each == kind)
        return self.numbers[kind, value]

    def _uuid(self, match: re.Match[str]) -> str:
        if not match[0].strip("0-_"):
            return match[0]
        number = self._number("uuid", match[0].lower().replace("_", "-"))
        # The number in front: `--gpus` takes the beginning of a UUID.
        return match[1].join((f"{number:08x}", "0000", "0000", "0000", "0" * 12))

    def _long_id(self, match: re.Match[str]) -> str:
        number = self._number("id", match[0])
        return match[0] if not match[0].strip("0f") else f"{number:x}".rjust(len(match[0]), "0")

    def _mac(self, text: str, octets: int) -> str:
        between = text[2]
        plain = text.replace(between, "").lower()
        if plain.strip("0") == "" or plain.strip("f") == "":
            return text
        new = f"02{self._number('mac', plain):0{2 * octets - 2}x}"
        return between.join(new[i : i + 2] for i in range(0, len(new), 2))

    def _guid(self, text: str) -> str:
        low = int(text.replace(":", ""), 16)
        return text if low == 0 else _grouped(self._low(low), 4)

    def _low(self, low: int) -> int:
        """Return the replacement for an interface id or GUID.

        In the replacement, the bit that marks a locally assigned id is set.
        """
        return 0x0200_0000_0000_0000 | self._number("guid", low)

    def _ipv6(self, text: str) -> str:
        try:
            number = int(ipaddress.IPv6Address(text))
        except ValueError:
            return text
        if number in (0, 1) or number & LOW_64 == 0:
            return text
        if number >> 32 == MAPPED_V4 >> 32:
            new = MAPPED_V4 | int(ipaddress.IPv4Address(self._ipv4(str(ipaddress.IPv4Address(number & 0xFFFFFFFF)))))
        elif number >> 64 == FE80 >> 64:
            new = FE80 | self._low(number & LOW_64)
        else:
            new = NEW_V6 | self._number("prefix", number >> 64) << 64 | self._low(number & LOW_64)
        is_whole = re.fullmatch(rf"(?:{HEX}{{4}}:){{7}}{HEX}{{4}}", text)
        return _grouped(new, 8) if is_whole else str(ipaddress.IPv6Address(new))

    def _ipv4(self, text: str) -> str:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            return text
        if any(address in net for net in KEPT_V4):
            return text
        start = NEW_LINK_LOCAL_V4 if address in LINK_LOCAL_V4 else NEW_V4
        return str(ipaddress.IPv4Address(start + self._number("ipv4", address)))


def _grouped(number: int, groups: int) -> str:
    digits = f"{number:0{4 * groups}x}"
    return ":".join(digits[i : i + 4] for i in range(0, len(digits), 4))
