"""Remove texts that identify a site, such as the names of hosts, users and jobs, addresses and GPU ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from preflight.facts.scrub import HOST, Scrubber

REMOVED = "(removed)"
# Variables whose value names somebody or something, by their name; the value is removed wherever it occurs.
NAMING = re.compile(
    r"^(?:USER|LOGNAME|USERNAME|SUDO_USER|HOSTNAME|HOST|MAIL|CONDA_\w+|VIRTUAL_ENV|SSH_\w+|KUBERNETES_\w+|POD_\w+|"
    r"MY_POD_\w+|\w*(?:JOB|ACCOUNT|PROJECT|NODELIST|NODENAME|HOSTNAME|INSTANCE|CLUSTER|CONTAINER|TOKEN|KEY|SECRET|"
    r"PASSWORD|MASTER_ADDR)\w*)$"
)
LEAST_LETTERS = 3  # a shorter value occurs in too many words
ORDINARY = frozenset({"root", "localhost", "true", "false", "none", "python", "python3", "nvidia", "cuda", "default"})
# What identifies a card or another user's process, as nvidia-smi prints it and as it writes XML and CSV.
FIELDS = (
    "Serial Number", "GPU UUID", "Board ID", "Board Part Number", "GPU Part Number", "FRU Part Number", "VBIOS Version",
    "Chassis Serial Number", "Image Version", "PDI", "Process ID", "Name", "GUID", "Chassis GUID", "Cluster UUID",
    "Platform Info", "Slot Number", "Tray Index", "Host ID",
)  # fmt: skip
FIELD = re.compile(rf"^(\s*(?:{'|'.join(FIELDS)})\s*: ).*$", re.MULTILINE)
KEYED = re.compile(
    r'("(?:serial|board_serial|uuid|hostname|host|user|username|cmdline|command|comm|vbios|board_part_number|pid|'
    r'process_name|sm_guid|node_guid|sys_image_guid|machine_id|boot_id|instance_id)"\s*: )(?:"[^"]*"|\d+)'
)
PROCESSES = re.compile(r'("processes"\s*: )\[[^\]]*\]')
PROCESS = re.compile(r"\b(pid|name)=('[^']*'|[^,\s]+)")  # of the driver's messages about an Xid
HEX_ID = re.compile(r"\b0x[0-9a-fA-F]{12,16}\b")  # a GUID, or an address in a process: neither says anything here


class Privacy:
    """A filter that removes the names of one site from texts.

    Equal addresses and equal UUIDs get equal replacements.
    """

    def __init__(self, hosts: Sequence[str], home: str, environ: Mapping[str, str]) -> None:
        whole = sorted({*hosts, *(host.partition(".")[0] for host in hosts)} - {""}, key=len, reverse=True)
        self._hosts = re.compile("|".join(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])" for host in whole), re.I)
        self._scrubber = Scrubber(home="" if home in ("", "/", "/root") else home)
        values = {value for name, value in environ.items() if NAMING.match(name)}
        parts = {part for value in values for part in (value, *re.split(r"[\s,:/@=]+", value))}
        named = [part for part in parts if _names_something(part)]
        self._named = re.compile("|".join(map(re.escape, sorted(named, key=len, reverse=True)))) if named else None

    def text(self, text: str) -> str:
        """Return the text without names that identify the site."""
        text = FIELD.sub(rf"\1{REMOVED}", text)
        text = PROCESSES.sub(r"\1[]", text)
        text = PROCESS.sub(rf"\1={REMOVED}", text)
        text = KEYED.sub(rf'\1"{REMOVED}"', text)
        text = HEX_ID.sub("0x" + REMOVED, text)
        text = self._scrubber.text(text)
        text = self._hosts.sub(HOST, text) if self._hosts.pattern else text
        return self._named.sub(REMOVED, text) if self._named else text


def _names_something(part: str) -> bool:
    is_number = part.replace(".", "").replace("-", "").isdigit() and len(part) < LEAST_LETTERS + 2
    return len(part) >= LEAST_LETTERS and not is_number and part.lower() not in ORDINARY
