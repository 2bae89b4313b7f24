"""The grammar of SIMNCCL: which faults the backend `simnccl` has, and when they act.

    SIMNCCL  = rule [; rule ...]
    rule     = ACTION[:key=value[,key=value ...]]
    ACTION   = hang | crash | stop (SIGSTOP to itself) | error (raise what NCCL raises, after its WARN line)
             | lose (what a card sends is never acknowledged: status=12 in the log, then a hang; give it hca=)
             | corrupt (one wrong element) | slow (the call returns later)
    keys     = rank=R (default: all), stage=init|first|timed, factor=F (slow), last when=VAR=VALUE or unless=VAR=VALUE
    on a described machine (`check --machine FILE`) also, each with a leading ! for "anything else":
               via=P2P | P2P/PCI | P2P/NVL | SHM | SHM/FILE | SHM/CUMEM | NET | NET/IB | NET/Socket | NVLS
                             what this rank's data goes through
               net=IB|Socket the network that was initialised, whether data crosses it or not
               netif=NAME    the interface of the bootstrap
               family=AF_INET|AF_INET6  the bootstrap's address family
               hca=NAME      a card that the network uses
               cumem=0|1     whether buffers come from cuMem
               gpu=N         the rank that has this GPU (NVML's number)

`first` is the group's first data collective, `timed` every later one; barriers don't count. The default stage is timed
for corrupt and slow, first for what goes by `via` (NCCL connects at the first use), init for the others. The value of
when/unless runs to the end of the rule; `&` joins conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ACTIONS = ("hang", "crash", "stop", "error", "lose", "corrupt", "slow")
STAGES = ("init", "first", "timed")
PLACES = ("via", "net", "netif", "family", "hca", "cumem", "gpu")
VIAS = (
    "P2P", "P2P/PCI", "P2P/NVL", "SHM", "SHM/FILE", "SHM/CUMEM", "NET", "NET/IB", "NET/Socket", "NVLS",
)  # fmt: skip
CLOSED = {"via": VIAS, "net": ("IB", "Socket"), "family": ("AF_INET", "AF_INET6"), "cumem": ("0", "1")}

Signs = Mapping[str, frozenset[str]]  # of one rank: what each of PLACES is for it


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault: what, on which rank (-1: all), at which stage, how much, under which environment, and where."""

    action: str
    rank: int
    stage: str
    factor: float
    when: tuple[tuple[str, str], ...]
    unless: tuple[tuple[str, str], ...]
    where: tuple[tuple[str, str], ...] = ()

    def applies(self, rank: int, stage: str, environ: Mapping[str, str], signs: Signs | None = None) -> bool:
        """Tell whether the fault acts now, on this rank; `signs` is None where no machine is described."""
        return (
            self.rank in (-1, rank)
            and self.stage == stage
            and all(environ.get(name) == value for name, value in self.when)
            and not (self.unless and all(environ.get(name) == value for name, value in self.unless))
            and all(_holds(wanted, (signs or {}).get(place, frozenset())) for place, wanted in self.where)
        )

    def about(self, place: str) -> str:
        """Return what the rule wants of a place, "" for nothing."""
        return dict(self.where).get(place, "")


def parse(text: str) -> tuple[Rule, ...]:
    """Return the rules of a SIMNCCL value; ValueError says what is wrong."""
    return tuple(_parse_rule(part.strip()) for part in text.split(";") if part.strip())


def _holds(wanted: str, found: frozenset[str]) -> bool:
    name = wanted.removeprefix("!")
    there = any(each == name or each.startswith(f"{name}/") for each in found)
    return bool(found) and not there if wanted.startswith("!") else there


def _parse_rule(text: str) -> Rule:
    action, _, rest = text.partition(":")
    if action not in ACTIONS:
        raise ValueError(f"SIMNCCL: unknown action {action!r}")
    keys: dict[str, str] = {}
    when: tuple[tuple[str, str], ...] = ()
    unless: tuple[tuple[str, str], ...] = ()
    while rest:
        if rest.startswith(("when=", "unless=")):
            kind, _, condition = rest.partition("=")
            pairs = tuple(_parse_condition(each) for each in condition.split("&"))
            when, unless = (pairs, unless) if kind == "when" else (when, pairs)
            break
        word, _, rest = rest.partition(",")
        key, _, value = word.partition("=")
        if key not in ("rank", "stage", "factor", *PLACES):
            raise ValueError(f"SIMNCCL: unknown key {key!r}")
        keys[key] = value
    stage = keys.get("stage", _default_stage(action, keys.get("via", "NVLS")))
    if stage not in STAGES:
        raise ValueError(f"SIMNCCL: unknown stage {stage!r}")
    where = tuple((place, _place(place, keys[place])) for place in PLACES if place in keys)
    return Rule(action, _rank(keys.get("rank")), stage, _factor(keys.get("factor", "5")), when, unless, where)


def _default_stage(action: str, via: str) -> str:
    if action in ("corrupt", "slow"):
        return "timed"
    return "init" if via == "NVLS" else "first"


def _place(place: str, text: str) -> str:
    name = text.removeprefix("!")
    if not name or name not in CLOSED.get(place, (name,)):
        raise ValueError(f"SIMNCCL: {place}={text!r} is none of {', '.join(CLOSED.get(place, ('a name',)))}")
    return text


def _parse_condition(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise ValueError(f"SIMNCCL: {text!r} is no condition VAR=VALUE")
    return name, value


def _rank(text: str | None) -> int:
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ValueError(f"SIMNCCL: unknown rank {text!r}")
    return -1 if text is None else int(text)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 1e6:
        raise ValueError(f"SIMNCCL: factor={text!r} is no number from 1 to 1e6")
    return factor
