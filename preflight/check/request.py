"""The options of `preflight check`, from the command line, from the Python API or from `preflight run`."""
# typer reads the options from the fields. This module must load fast, because --help needs only this module.

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import ClassVar

from preflight.check import option_kinds, options
from preflight.check.option_kinds import ANSWERS_BACK
from preflight.errors import UsageError
from preflight.model.collective import Collective
from preflight.model.parsing import no_such
from preflight.model.profile import ALL_TESTS, COLLECTIVES, GpuTests, Profile

# What makes no sense with --on: files of one node, this machine's place among others, machines that are not there.
NOT_WITH_ON: Mapping[str, object] = {
    "env_out": "preflight.env", "also": None, "keep": False, "sysroot": None, "machine": None, "nnodes": None,
    "node_rank": None, "rdzv_endpoint": None, "rdzv_id": None, "checkpoint_dir": None, "fabric": None,
}  # fmt: skip
TOGETHER = frozenset({"env_out", "also", "rdzv_endpoint", "checkpoint_dir"})  # allowed with --together
WAYS = ("ssh:", "slurm:", "k8s:")
HOSTS = "ssh:node[01-40], ssh:@FILE with a host per line, slurm:4 (nodes), slurm:node[01-40]"
FORMS = f"write {HOSTS} or k8s:4x8 (with 8 GPUs)"


@dataclass(frozen=True, slots=True)
class Request:
    """Test this node with real collectives, and write NCCL settings.
    Exit codes: 0 ready, 1 not ready, 2 usage error, 3 inconclusive.
    """

    gpus: options.Gpus = None
    nproc: options.Nproc = None
    backend: options.Backend = None
    profile: options.ProfileOption = Profile.QUICK
    deadline: options.Deadline = None
    json: option_kinds.JsonPath = None
    env_out: options.EnvOut = "preflight.env"
    report: options.ReportOut = "preflight-report.json"
    also: options.Also = None
    strict: options.Strict = False
    accept: options.Accept = False
    shadow: options.Shadow = False
    stage_limit: options.StageLimit = None
    keep: options.Keep = False
    policy: options.PolicyFile = None
    baseline: options.BaselineFile = None
    fabric: options.FabricFile = None
    history: options.HistoryFolder = None
    minutes: options.Minutes = None
    sysroot: options.SysrootOption = None
    machine: options.PlayedMachine = None
    nnodes: options.Nnodes = None
    node_rank: options.NodeRank = None
    rdzv_endpoint: options.Endpoint = None
    rdzv_id: options.RunId = None
    on: options.OnNodes = None
    together: options.Together = False
    slurm_args: options.SlurmArgs = None
    image: options.Image = None
    apply: options.Apply = False
    checkpoint_dir: options.SharedDirectory = None
    tests: options.Tests = None
    collectives: options.Collectives = None
    sizes: options.Sizes = None
    skip: options.Skip = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False
    for_: options.ForEngine = None
    starts: options.Starts = ""
    starts_if_unknown: options.StartsIfUnknown = False
    starts_over_sockets: options.StartsOverSockets = False
    default_only: ClassVar[bool] = False  # test the default settings only

    def must_make_sense(self, checks: Set[str]) -> None:
        """Raise UsageError if the options are invalid or exclude each other.

        `checks` are the names of all checks.
        """
        _ = self.burn_s, self.slurm_options, self.wanted_tests, self.wanted_collectives, self.sizes_bytes
        if self.sysroot is not None and self.machine is not None:
            raise UsageError("--sysroot and --machine: one machine at a time")
        if self.is_elsewhere and (
            refused := {
                name
                for name in NOT_WITH_ON.keys() - (TOGETHER if self.together else frozenset())
                if getattr(self, name) != NOT_WITH_ON[name]
            }
        ):
            name = min(refused).replace("_", "-")
            why = "each node checks itself alone, and its report comes here"
            if self.together:
                why = "--on names the nodes, and they keep nothing"
            elif refused in ({"rdzv_endpoint"}, {"checkpoint_dir"}):
                why += "; --together makes a joint run"
            raise UsageError(f"--on with --{name}: {why}")
        if self.is_elsewhere and not str(self.on).startswith(WAYS):
            raise UsageError(f"--on {self.on}: {FORMS}")
        if self.together and not str(self.on).startswith(("ssh:", "slurm:")):
            raise UsageError("--together: only --on ssh:... and slurm:... start nodes that can join one run")
        if (self.image is not None or self.apply) and not str(self.on).startswith("k8s:"):
            raise UsageError("--image and --apply: only --on k8s:... makes a Job")
        if self.apply and self.image is None:
            raise UsageError("--apply: name the job's own image, which has preflight in it, with --image")
        if unknown := sorted(self.skipped - checks):
            raise no_such(f"--skip {unknown[0]}", "check", unknown[0], checks)

    @property
    def is_elsewhere(self) -> bool:
        """Return whether other nodes are checked, while this node only collects their reports."""
        return self.on not in (None, ANSWERS_BACK)

    @property
    def slurm_options(self) -> tuple[str, ...]:
        """Return the user's options for salloc, or for srun inside a Slurm job."""
        return options.slurm_words(self.slurm_args, self.on)

    @property
    def burn_s(self) -> float | None:
        """Return how many seconds the tests repeat under load, or None for the default of the profile."""
        return options.burn_seconds(self.minutes, self.profile)

    @property
    def until_s(self) -> float:
        """Return the time limit of the run, in seconds from its start."""
        return self.deadline or self.profile.effort.until_s(self.burn_s)

    @property
    def wanted_tests(self) -> Set[GpuTests]:
        """Return the tests to run in addition to the timed collectives."""
        return ALL_TESTS if self.tests is None else options.parse_tests(self.tests)

    @property
    def wanted_collectives(self) -> tuple[Collective, ...]:
        """Return the collectives to time."""
        return COLLECTIVES if self.collectives is None else options.parse_collectives(self.collectives)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Return the message sizes in bytes that replace the sizes of the profile, or () without --sizes."""
        return () if self.sizes is None else options.parse_sizes(self.sizes)

    @property
    def skipped(self) -> frozenset[str]:
        """Return the names of the checks to leave out."""
        return frozenset(options.names_in(",".join(self.skip or ())))

    @property
    def narrowed(self) -> str:
        """Return the given options that limit the check, written as on the command line.

        Return "" if no option limits the check.
        """
        left_out = ",".join(sorted(self.skipped)) or None
        given = {"tests": self.tests, "collectives": self.collectives, "sizes": self.sizes, "skip": left_out}
        return " ".join(f"--{name} {''.join(text.split())}" for name, text in given.items() if text is not None)

    @property
    def is_other_machine(self) -> bool:
        """Return whether another machine is checked, from recorded data.

        The result then counts as simulated.
        """
        return self.sysroot is not None or self.machine is not None

    @property
    def is_played(self) -> bool:
        """Return whether a simulated backend plays back a captured machine.

        The backend has one rank for each GPU of the captured machine.
        """
        return self.machine is not None

    def arguments(self) -> list[str]:
        """Return the command-line arguments that produce an equal request.

        Times are rounded to milliseconds.
        """
        given = []
        for field in fields(self):
            value, name = getattr(self, field.name), f"--{field.name.rstrip('_').replace('_', '-')}"
            if value == field.default and field.default is not MISSING:
                continue
            for each in value if isinstance(value, (list, tuple)) else [value]:
                text = f"{each:.3f}" if isinstance(each, float) else each.value if isinstance(each, Enum) else each
                given.append(name if text is True else f"{name}={text}")
        return given


@dataclass(frozen=True, slots=True)
class BenchRequest(Request):
    """The options of `preflight bench`, which tests only the default settings and only the collectives."""

    default_only: ClassVar[bool] = True

    @property
    def wanted_tests(self) -> Set[GpuTests]:
        """Return an empty set, because `bench` times only collectives."""
        return frozenset()

    @property
    def narrowed(self) -> str:
        """Return "", because a report of `bench` contains everything that was requested."""
        return ""
