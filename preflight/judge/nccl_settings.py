"""Find known problems with the values of the environment variables of NCCL, gloo and torch.

See docs/dev/nccl-facts.md, sections 1.0 to 1.5 and 4.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.model.finding import Severity
from preflight.model.nccl_variables import BY_NAME
from preflight.model.parsing import parsed_integer

LEVELS = frozenset(
    {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"} | set("012345")
)  # legacy digits
LEVEL_VARIABLES = frozenset({"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"})

MEANT_AS_YES = frozenset({"true", "yes", "on", "y", "t", "enable", "enabled"})


@dataclass(frozen=True, slots=True)
class Remark:
    """A warning about the value of a setting, with the unexpected effect and a better value."""

    severity: Severity
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class Trap:
    """A row of the table of harmful values.

    `pattern` must match the whole value of the variable `name`.
    """

    name: str
    pattern: str
    severity: Severity
    problem: str
    fix: str


WARN, INFO = Severity.WARN, Severity.INFO
NOT_NEEDED = "unset the variable unless the recommendation says that the job needs it"
TRAPS = (
    Trap("NCCL_IB_CUDA_SUPPORT", ".*", WARN, "was removed in NCCL 2.4 and does nothing", "use NCCL_NET_GDR_LEVEL"),
    Trap("NCCL_PROTO", r"(?!\^).*LL128.*", WARN, "forcing LL128 can corrupt data where it is not supported",
         "unset it"),
    Trap("NCCL_PROTO", ".+", INFO, "forces the protocol; with an unknown value, init fails", NOT_NEEDED),
    Trap("NCCL_ALGO", ".+", INFO, "forces the algorithm; with an unknown value, init fails", NOT_NEEDED),
    Trap("NCCL_DEBUG_FILE", "(?!.*%p).+", WARN, "has no %p, so the ranks overwrite each other's log",
         "add .%h.%p to the name"),
    Trap("NCCL_TOPO_FILE", "", WARN, "is empty, which hides the cloud's own topology file from NCCL", "unset it"),
    Trap("NCCL_CONF_FILE", "~.*", WARN, "is not expanded, so NCCL does not find the file", "write the whole path"),
    Trap("NCCL_SOCKET_FAMILY", "(?!AF_INET6?$).+", WARN, "is neither AF_INET nor AF_INET6, so NCCL ignores it",
         "write AF_INET or AF_INET6"),
    Trap("NCCL_IGNORE_DISABLED_P2P", "2", WARN, "makes NCCL trust P2P pairs that the driver denies",
         "unset it or write 1"),
    Trap("NCCL_IB_GID_INDEX", r"\d+", INFO, "keeps NCCL 2.21 and newer from finding the right GID itself",
         "unset it if your NCCL is 2.21 or newer"),
    Trap("NCCL_NET", "(?i:socket)", INFO, "leaves only TCP, which is much slower than RDMA, and is not proven "
    "necessary here",
         NOT_NEEDED),
    Trap("TORCH_DISTRIBUTED_DEBUG", "DETAIL", WARN, "checks every collective over gloo and slows all collectives",
         "unset it"),
    Trap("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", WARN, "switches the watchdog off, so a job that hangs never ends",
         "unset it (default 3)"),
    Trap("NCCL_ASYNC_ERROR_HANDLING", "0", WARN, "switches the watchdog off, so a job that hangs never ends",
         "unset it; its name today is TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    Trap("TORCH_NCCL_BLOCKING_WAIT", "[1-9].*|[tTyY].*", WARN,
         "switches the watchdog off from torch 2.8 on, and no call times out, so a job that hangs never ends",
         "unset it, so that the watchdog ends the job after the timeout"),
    Trap("CUDA_LAUNCH_BLOCKING", "1", WARN, "runs one kernel at a time; it is for debugging and slows the job",
         "unset it"),
)  # fmt: skip


def remarks(name: str, value: str) -> tuple[Remark, ...]:
    """Return the warnings about the value of a variable, the most severe first, or () if there is no warning.

    Only the variable's `name` and `value` are examined.
    """
    if name != name.strip():
        return (
            Remark(WARN, f"defines a variable whose name has a blank ({name!r})", "write NAME=value without blanks"),
        )
    found = (_integer(name, value), _level(name, value), _timeout(name, value), _switched_off(name, value))
    trap = next((t for t in TRAPS if t.name == name and re.fullmatch(t.pattern, value)), None)
    trapped = (Remark(trap.severity, trap.problem, trap.fix),) if trap else ()
    return (*(remark for remark in found if remark is not None), *trapped)


def _integer(name: str, value: str) -> Remark | None:
    if not value or name not in BY_NAME or not BY_NAME[name].is_integer:  # an empty value means the default
        return None
    number, rest = parsed_integer(value)
    if rest == value:
        meant = "1" if value.strip().lower() in MEANT_AS_YES else "0 or 1"
        effect = (
            "does nothing" if name.endswith("_DISABLE") else "switches it off" if name.endswith("_ENABLE") else "is 0"
        )
        return Remark(WARN, f"is not a number; NCCL reads it as 0, so it {effect}", f"write {meant}, or unset it")
    if rest.strip():
        return Remark(
            WARN, f"is read as {number}, because NCCL ignores the text after the number", "write only the number"
        )
    if name == "NCCL_P2P_DISABLE" and number not in (0, 1):
        return Remark(WARN, "has no effect, because NCCL acts only on 1", "write 1, or unset it")
    return None


def _level(name: str, value: str) -> Remark | None:
    if name not in LEVEL_VARIABLES or value in LEVELS or not value:
        return None
    meant = f"write {value.upper()}" if value.upper() in LEVELS else "write one of LOC NVL PIX PXB PHB SYS"
    return Remark(
        WARN,
        "is not a level that NCCL knows (levels are in capitals), so NCCL silently ignores it",
        f"{meant}, or unset it",
    )


def _timeout(name: str, value: str) -> Remark | None:
    if name != "NCCL_IB_TIMEOUT" or not value or 0 < parsed_integer(value)[0] < 32:
        return None
    return Remark(WARN, "disables the timeout, so a lost peer hangs the job", "write 20 to 23, or unset it")


def _switched_off(name: str, value: str) -> Remark | None:
    variable = BY_NAME.get(name)
    if not value or variable is None or not variable.costs:
        return None
    number, rest = parsed_integer(value)
    if rest == value or bool(number) is not (variable.off == "1") or (name == "NCCL_P2P_DISABLE" and number != 1):
        return None
    problem = f"is not proven necessary here, but switches off {variable.costs}"
    return Remark(INFO, problem, "unset it, unless a trial shows that the job needs it")
