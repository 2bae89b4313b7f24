"""A framework refused its configuration before any work began."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

VERDICT = "The framework refused its configuration: {text}"
RAY = "Ray could not give the engine the GPUs that it asked for: a node is missing in Ray, or its GPUs are in use."
MPI = "The program was started with fewer MPI ranks than its configuration needs."
LONGEST = 160


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Claim the refusal, in the framework's words."""
    because = "the framework names the setting that does not fit"
    if verdict := {"arguments.ray": RAY, "arguments.mpi": MPI}.get(events[0].sign, ""):
        return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)
    text = events[0].text
    begins = max(text.rfind(mark, 0, text.find(events[0].match)) + len(mark) for mark in (": ", "] "))
    verdict = VERDICT.replace("{text}", text[max(0, begins) if begins > 1 else 0 :].strip()[:LONGEST])
    return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the steps: look at the resources of Ray or MPI, or change the setting that the line names."""
    match claim.events[0].sign:
        case "arguments.ray":
            return Remedy(
                "Run `ray status` on the head node. It must show enough free GPUs for the product of the parallel "
                "sizes. `ray list nodes` must show every node as ALIVE.",
                "If a node is missing, run `ray start --address=HEAD:6379 --num-gpus N` on it. If GPUs are in use, "
                "end the actors that hold them (ray list actors).",
                "If there are too few GPUs, reduce the tensor or pipeline parallel size.",
            )
        case "arguments.mpi":
            return Remedy(
                "Run `mpirun -n N` with N = tensor x pipeline x context parallel size of the model or engine.",
            )
        case _:
            return Remedy(
                "Change the setting that the line names. The product of the tensor, pipeline, data, context and "
                "expert parallel sizes is the number of ranks. The sizes must divide the heads, layers, experts and "
                "global batch.",
                "Compare your settings with a recipe for the same release of the framework: names and defaults change.",
            )


CAUSE = Cause(
    promise="The options that the program was started with do not fit together.",
    signs=(
        Sign("arguments.sizes", Authority.SETUP, "parallel sizes do not fit together",
             r"(?:must be|is not|should be|has to be|not) (?:evenly )?divisible by|is not a multiple of|"
             r"[Cc]heck batch related parameters|world[ _]size[^\n]{0,60}(?:must be|is not|should be|is (?:less|"
             r"smaller))|"
             r"number of (?:required|requested) GPUs exceeds|"
             r"is (?:greater|larger) than the (?:number of available|total number of) GPUs|"
             r"(?:tensor|pipeline|data|context|expert)[- _](?:model[- _])?parallel[^\n]{0,20}size[^\n]{0,80}(?:must|"
             r"cannot|is not)"),
        Sign("arguments.ray", Authority.SETUP, "Ray has fewer GPUs than the engine asks for",
             r"Cannot provide a placement group of|Ray does not allocate any GPUs on the driver node|"
             r"No available node types can fulfill resource request"),
        Sign("arguments.mpi", Authority.SETUP, "the program used the number of an MPI rank that does not exist",
             r"Assertion failed: Failed: MPI error \S{1,200} '6'|MPI_ERR_RANK: invalid rank"),
        Sign("arguments.support", Authority.SETUP, "an option that this machine or release does not support",
             r"does not support comm\+GEMM overlap|Launch app with UB_SKIPMC|(?:cannot|"
             r"can not) be used (?:together )?with -|"
             r"is (?:only )?incompatible with --|mutually exclusive|argument --\S{1,60}: (?:invalid|expected)|"
             r"[Uu]nknown (?:backend|distributed backend|parallel mode)"),
    ),
    judge=judge,
    remedy=remedy,
    needs="the same error in a run of one step",
    confirm_with="run the same command with the setting changed",
    outranks=("not_nccl",),
)  # fmt: skip
