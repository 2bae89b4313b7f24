"""A framework refused its configuration before any work began."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

VERDICT = "The framework refused its configuration: {text}"


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Claim the refusal, in the framework's words."""
    because = "the framework says which setting does not fit"
    verdict = VERDICT.replace("{text}", events[0].text.strip()[-160:])
    return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)


CAUSE = Cause(
    promise="The numbers or options that the program was started with do not fit together.",
    signs=(
        Sign("arguments.sizes", Authority.SETUP, "sizes that do not fit together",
             r"(?:must be|is not|should be|has to be|not) (?:evenly )?divisible by|is not a multiple of|"
             r"[Cc]heck batch related parameters|world[ _]size[^\n]{0,60}(?:must be|is not|should be|is (?:less|"
             r"smaller))|"
             r"is (?:greater|larger) than the (?:number of available|total number of) GPUs|"
             r"(?:tensor|pipeline|data|context|expert)[- _](?:model[- _])?parallel[^\n]{0,20}size[^\n]{0,80}(?:must|"
             r"cannot|is not)"),
        Sign("arguments.support", Authority.SETUP, "an option that this machine or release does not support",
             r"does not support comm\+GEMM overlap|Launch app with UB_SKIPMC|(?:cannot|"
             r"can not) be used (?:together )?with -|"
             r"is (?:only )?incompatible with --|mutually exclusive|argument --\S{1,60}: (?:invalid|expected)|"
             r"[Uu]nknown (?:backend|distributed backend|parallel mode)"),
    ),
    judge=judge,
    remedy=fixed(
        "Change the setting that the line names; sizes of tensor, pipeline, data, context and expert parallelism "
        "multiply to the number of ranks, and must divide the heads, layers, experts and the global batch.",
        "Compare with a recipe of the same release of the framework: names and defaults change between releases.",
    ),
    needs="the same refusal in a run of one step",
    confirm_with="the same command with the setting changed; `preflight check` checks the machine",
    outranks=("not_nccl",),
)  # fmt: skip
