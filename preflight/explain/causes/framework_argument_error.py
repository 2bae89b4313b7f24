"""A framework refused its configuration before any work began."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.causes.not_nccl import claim_of_known
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LAST_LINES, LogEvidence
from preflight.model.explanation import Confidence

VERDICT = "The framework refused its configuration: {text}"
UNKNOWN = "The program does not accept its arguments: {text}"
LAUNCHER = "The launcher or the scheduler can't give the program what it asks for: {text}"
RAY = (
    "Ray could not give the engine its GPUs: the GPUs are in use, a node is missing in Ray, or a node has registered "
    "no GPUs."
)
RAY_NODE = (
    "The engine asks Ray for a GPU on the node {node}, which Ray can't give: Ray knows the node by another address, or "
    "none of its GPUs is free."
)
NODE = re.compile(r"resource request \{[^}\n]{0,120}'node:(\d[\d.]{6,14}|[0-9a-fA-F]{0,4}:[0-9a-fA-F:]{2,40})'")
NAMED = "the message names the setting"
MPI = "The program was started with fewer MPI ranks than its configuration needs."
PENDING = "pending placement group"
WAITS = re.compile(rf"{PENDING}$|required GPUs exceeds")
# Where programs check the options that they got; `validate` alone is the validation of a model.
CHECK = re.compile(
    r"_?(?:validate|check|verify|parse|get)_(?:\w{1,40}_)?(?:args|arguments|config|configuration|options|and_set)|__post_init__"
)
CHECKED = re.compile(r"\bassert [^\n]{0,40}\b(?:args|cfg|config|hparams)\.")
COMPARED = re.compile(r"\bassert self\.\w{1,40} (?:[<>]=?|==) self\.\w{1,40}$")  # in a constructor
# Errors that only the readers of a configuration raise: OmegaConf, Hydra, and pydantic for a configuration's class.
CONFIG = re.compile(
    r"omegaconf\.errors\.\w{1,60}$|hydra\.errors\.(?:Config|Missing|Override)\w{1,60}$|Config(?:Attribute|Key|Type)Error$"
)
VALIDATED = re.compile(r"\d{1,3} validation errors? for \w{0,60}(?:Args|Arguments|Config|Params|Settings)\b")
# What a program asks its user to change, by the name of the setting.
ASKED = re.compile(
    r"[Pp]lease (?:increase|decrease|reduce|lower|raise|adjust) [`'\"]?-{0,2}[a-z]{2,20}[_-][a-z_-]{2,40}|"
    r"max_steps has to be specified"
)
VALUE, VALUE_LINES = "arguments.value", 3  # pydantic's line about the value, so many lines after the exception
REFUSED = re.compile(r"(?:Assertion|Value|Runtime|NotImplemented|Config\w{0,10}|Argument)Error$")
LONGEST = 160
FEW_LINES = 4  # after which a script has gone on; mpirun's own explanation is longer


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a framework refused its configuration, or return None.

    The conclusion quotes the framework.
    """
    # A line about a pending request, or of a launcher that refuses, counts only at the end of the log.
    events = tuple(event for event in events if _counts(event, evidence))
    if not events:
        return _by_reader(evidence) or _by_check(evidence)
    because = "the framework names the setting that does not fit"
    if node := NODE.search(events[0].text):
        return Claim(events[0].authority, events, Confidence.MEDIUM, because, RAY_NODE.replace("{node}", node[1]))
    if verdict := {"arguments.ray": RAY, "arguments.mpi": MPI}.get(events[0].sign, ""):
        is_pending = events[0].match.endswith(PENDING)  # it may have been placed later
        return Claim(
            events[0].authority, events, Confidence.MEDIUM if is_pending else Confidence.HIGH, because, verdict
        )
    text = events[0].text
    at = text.find(events[0].match)
    begins = max(text.rfind(mark, 0, at) + len(mark) for mark in (": ", "] "))
    if events[0].sign == "arguments.launcher":
        begins = at
    said = {"arguments.unknown": UNKNOWN, "arguments.launcher": LAUNCHER}.get(events[0].sign, VERDICT)
    verdict = said.replace("{text}", text[max(0, begins) if begins > 1 else 0 :].strip()[:LONGEST])
    return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)


def _counts(event: Event, evidence: LogEvidence) -> bool:
    if event.sign == "arguments.launcher":
        is_alone = not evidence.raised() and all(other.sign == event.sign for other in evidence.failures())
        after = evidence.sources[event.source].lines - event.line
        return is_alone and after < (LAST_LINES * 3 if "srun" not in event.text else FEW_LINES)
    return event.sign != VALUE and (WAITS.search(event.match) is None or _is_last(event, evidence))


def _by_reader(evidence: LogEvidence) -> Claim | None:
    """Return this cause if the first error names a setting that was refused; else None.

    The error must be near the end of a log.
    """
    raised = evidence.raised() or evidence.last_without_traceback
    if not raised or any(done.order > raised[0][0].order for done in evidence.successes()):
        return None
    first, error = raised[0]
    same = [event for event, other in raised if other == error]
    if not any(_is_last(event, evidence) for event in same):
        return None
    text = f"{error.type}: {error.message}"
    if CONFIG.search(error.type) or (evidence.raised() and VALIDATED.search(error.message)):
        because = "only code that reads a configuration raises this error"
        for value in evidence.of(VALUE):
            if value.source == first.source and 0 < value.line - first.line <= VALUE_LINES:
                text = value.text.partition("Value error, ")[2].partition(" [type=")[0]
                same.append(value)
                break
    elif REFUSED.search(error.type) and ASKED.search(error.message):
        because = "the program asks for another value"
    else:
        return None
    verdict = VERDICT.replace("{text}", text[:LONGEST])
    return claim_of_known(evidence, raised, same, error, because, verdict, (NAMED,))


def _by_check(evidence: LogEvidence) -> Claim | None:
    """Return this cause if the code that checks a program's options raised the first error; else None."""
    raised = evidence.raised()
    if not raised or any(done.order > raised[0][0].order for done in evidence.successes()):
        return None
    first, error = raised[0]
    frame = evidence.frame(first)
    if frame is None:
        return None
    is_check = CHECK.fullmatch(frame.function) or CHECKED.search(frame.source)
    if not REFUSED.search(error.type) or not (
        is_check or (frame.function == "__init__" and COMPARED.search(frame.source))
    ):
        return None
    same = tuple(event for event, other in raised if other == error)
    text = f"{error.message or frame.source} (raised at {frame.place_and_function})"
    because = "the error was raised where the program checks its options"
    return Claim(Authority.OWN_ERROR, same, Confidence.MEDIUM, because, VERDICT.replace("{text}", text))


def _is_last(event: Event, evidence: LogEvidence) -> bool:
    return evidence.sources[event.source].lines - event.line < LAST_LINES


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a refused configuration."""
    match "arguments.unknown" if claim.detail == (NAMED,) else claim.events[0].sign:
        case "arguments.ray" if NODE.search(claim.events[0].text):
            return Remedy(
                "Run `ray list nodes`: it shows the addresses that Ray uses. On every node, export VLLM_HOST_IP with "
                "the node's own address of this list before you start the engine.",
                "If the address is there, `ray status` must show a free GPU on it. If its node has left, run "
                "`ray start --address=HEAD:6379 --num-gpus N` on it.",
            )
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
        case "arguments.unknown":
            return Remedy(
                "Correct the option that the line names. The program's --help, or its file of default settings, lists "
                "the options that it knows.",
                "If the option comes from a recipe, compare the recipe's release with yours, because option names "
                "change.",
            )
        case "arguments.launcher":
            return Remedy(
                "Compare what the line says with what you asked for: nodes, tasks, cores, memory, GPUs and time.",
                "Under Slurm, `scontrol show job JOBID` shows the request, and `sinfo -o '%P %D %c %m %G'` the nodes.",
            )
        case _:
            return Remedy(
                "Change the setting that the line names. The product of the tensor, pipeline, data, context and "
                "expert parallel sizes is the number of ranks. The sizes must divide the heads, layers, experts and "
                "global batch.",
                "Compare your settings with a recipe for the same release of the framework, because names and "
                "defaults change.",
            )


CAUSE = Cause(
    promise="The options of the program do not fit together.",
    signs=(
        Sign("arguments.sizes", Authority.SETUP, "parallel sizes do not fit together",
             r"(?:must be|is not|should be|has to be|not) (?:evenly )?divisible by|is not a multiple of|"
             r"[Cc]heck batch related parameters|world[ _]size[^\n]{0,60}(?:must be|is not|should be|is (?:less|"
             r"smaller))|"
             r"not aligned with the quantized weight shape|number of (?:required|requested) GPUs exceeds|"
             r"is (?:greater|larger) than the (?:number of available|total number of) GPUs|"
             r"(?:tensor|pipeline|data|context|expert)[- _](?:model[- _])?parallel[^\n]{0,20}size[^\n]{0,80}(?:must|"
             r"cannot|is not)|"
             r"[Nn]umber of (?:microbatches|MPI ranks|GPUs|(?:attention )?heads|layers|experts)[^\n]{0,40} (?:must|"
             r"has to) |requires? \d{1,5} GPUs, but only|exceeds number of (?:CUDA|available)|"
             r"is different from saved mp_|is less than total desired GPUs|tasks per node configured in SLURM"),
        Sign("arguments.ray", Authority.SETUP, "Ray has no place for what the engine asks for",
             r"Cannot provide a placement group of|\): \d{1,5}\+? pending placement group|"
             r"Ray does not allocate any GPUs on the driver node|"
             r"No available node types can fulfill resource request|Current node has no GPU available"),
        Sign("arguments.mpi", Authority.SETUP, "the program used the number of an MPI rank that does not exist",
             r"Assertion failed: Failed: MPI error \S{1,200} '6'|MPI_ERR_RANK: invalid rank"),
        Sign("arguments.unknown", Authority.OWN_ERROR, "the program does not accept its arguments",
             r"Ambiguous value for argument '|Error parsing override '|Could not override '|"
             r": error: (?:unrecognized arguments|the following arguments are required|argument -\S{1,60}: )|"
             r"(?:hostname|port number) of the rendezvous endpoint '"),
        Sign("arguments.launcher", Authority.OWN_ERROR, "the launcher or the scheduler refused to start the program",
             r"(?:srun|sbatch|salloc): error: [^\n]{9,80}: (?:More processors requested|Invalid generic resource|"
             r"Requested node config|Invalid (?:account|partition|qos)|Memory required by task|"
             r"Job violates accounting/QOS|Node count specification invalid)|"
             r"(?:^|-)There are not enough slots available in the system|"
             r"(?:^|-)mpirun has detected an attempt to run as root"),
        Sign(VALUE, Authority.SILENCE, "a value of the configuration was refused",
             r"\bValue error, \w"),
        Sign("arguments.support", Authority.SETUP, "an option that this machine or release does not support",
             r"does not support comm\+GEMM overlap|Launch app with UB_SKIPMC|(?:cannot|"
             r"can not) be used (?:together )?with -|"
             r"string path to an existing deepspeed config|untested ZeRO Optimizer|"
             r"is (?:only )?incompatible with --|mutually exclusive|argument --\S{1,60}: (?:invalid|expected)|"
             r"[Uu]nknown (?:(?:communication |distributed )?backend|parallel mode)|"
             r"Device index must not be negative|MemPool doesn't currently support expandable_segments|"
             r"Expandable segments are not compatible with memory pool|"
             r"load_best_model_at_end requires the (?:save and eval|saving steps)|Please specify `target_modules` in"),
    ),
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="a run of one step ends with the same error",
    confirm_with="run the same command with the setting changed",
    outranks=("not_nccl",),
)  # fmt: skip
