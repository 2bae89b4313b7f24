"""The parts of a GPU report. Each part has a command, a time limit, and the question that the result answers."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.system.own_command import own_argv

ON_GPU, NVML_CODES = "preflight.gpu_report.on_gpu", "preflight.gpu_report.nvml_codes"
# The last of the kernel's lines about the GPUs, their links and the IOMMU.
DRIVER_LINES = "dmesg | grep -iE 'NVRM|nvidia|nvlink|nvswitch|pcieport|AER:|DMAR|iommu|mlx5' | tail -n 2000"
CLEAN_UP_S = 15.0  # for a check to end by itself, and to say what it knows


@dataclass(frozen=True, slots=True)
class ReportPart:
    """A part of a GPU report: a command, its limit in seconds, and the question that the result answers.

    The command needs at least `least_gpus` GPUs. `program` is an external program that must be installed, or "".
    """

    # A command that can end early gets `--deadline`, `ends_before_s` seconds before the limit, so that a partial result
    # is not lost.

    name: str
    answers: str
    command: tuple[str, ...]
    limit_s: float
    least_gpus: int = 1
    program: str = ""
    env: tuple[tuple[str, str], ...] = ()
    ends_before_s: float = 0.0

    def within(self, limit_s: float) -> tuple[str, ...]:
        """Return the command with a deadline that fits a time limit of `limit_s` seconds.

        `limit_s` may be shorter than the part's own limit. A command that can't end early is returned without a
        deadline.
        """
        deadline_s = max(1.0, limit_s - self.ends_before_s)
        return (*self.command, "--deadline", f"{deadline_s:.0f}") if self.ends_before_s else self.command


def parts() -> tuple[ReportPart, ...]:
    """Return all parts of the GPU report, the most informative part first.

    If time runs out, the last parts are left out.
    """
    return (
        _module("nvml", "what NVML's calls and fields return, and how long each takes", 90, NVML_CODES),
        _preflight("probe", "what preflight reads of this machine", 75, "probe", "--json", "probe.json"),
        _smi("nvidia-smi", "what nvidia-smi reads of it", "-q"),
        _smi("topology", "how nvidia-smi sees the links between the GPUs", "topo", "-m"),
        _smi("p2p-reads", "to which pairs the driver allows peer access", "topo", "-p2p", "r"),
        _smi("nvlink", "state and speed of the NVLinks", "nvlink", "-s"),
        _smi("nvlink-errors", "error counters of the NVLinks", "nvlink", "-e"),
        ReportPart("kernel-log", "the driver and PCIe in the kernel log", ("/bin/sh", "-c", DRIVER_LINES), 15),
        _on_gpu("torch", "versions, threads after the import, whether a fork is sound", 60, "torch"),
        _on_gpu("context", "time and memory of a CUDA context, and on which GPUs torch makes one", 60, "context"),
        _check("quick", "the whole check, quick", 150),
        _on_gpu("two-ranks", "NCCL between two ranks on one GPU", 60, "ranks", "2"),
        _on_gpu("products", "speed, clocks and throttling of GEMMs over time", 45, "products"),
        _on_gpu("killed", "how long a process killed in a kernel and its memory stay", 90, "killed"),
        _on_gpu("fault", "what torch and the driver say of an assertion that fails in a kernel", 60, "fault"),
        _on_gpu("memory", "whether the lower bound of `timeout --gpu-memory` holds", 60, "memory"),
        _on_gpu("stopped-rank", "what `preflight stuck` says of a stopped rank over NCCL", 75, "stopped", gpus=2),
        _bench("bench", "speed under the default settings", ()),
        _bench("bench-no-p2p", "speed without peer access", (("NCCL_P2P_DISABLE", "1"),)),
        _bench("bench-no-shm", "speed without shared memory", (("NCCL_SHM_DISABLE", "1"),)),
        _bench("bench-no-nvls", "speed without NVLink SHARP", (("NCCL_NVLS_ENABLE", "0"),)),
        _on_gpu("four-ranks", "NCCL between four ranks on one GPU", 90, "ranks", "4"),
        _preflight("capture", "this machine, to be played elsewhere", 60, "capture", "-o", "capture.json"),
        _check("standard", "the whole check, standard", 400),
    )  # fmt: skip


def _preflight(name: str, answers: str, limit_s: float, *arguments: str) -> ReportPart:
    return ReportPart(name, answers, tuple(own_argv(*arguments)), limit_s)


def _module(name: str, answers: str, limit_s: float, module: str, *arguments: str, gpus: int = 1) -> ReportPart:
    return ReportPart(name, answers, tuple(own_argv(*arguments, module=module)), limit_s, least_gpus=gpus)


def _on_gpu(name: str, answers: str, limit_s: float, *arguments: str, gpus: int = 1) -> ReportPart:
    return _module(name, answers, limit_s, ON_GPU, *arguments, gpus=gpus)


def _smi(name: str, answers: str, *arguments: str) -> ReportPart:
    return ReportPart(name, answers, ("nvidia-smi", *arguments), 30, program="nvidia-smi")


def _check(profile: str, answers: str, limit_s: float) -> ReportPart:
    options = ("--profile", profile, "--backend", "nccl", "--json", "report.json", "-v", "--keep")
    return ReportPart(profile, answers, tuple(own_argv("check", *options)), limit_s, ends_before_s=CLEAN_UP_S)


def _bench(name: str, answers: str, env: tuple[tuple[str, str], ...]) -> ReportPart:
    options = ("--backend", "nccl", "--profile", "quick", "--json", "report.json", "-v")
    command = tuple(own_argv("bench", *options))
    return ReportPart(name, answers, command, 60, least_gpus=2, env=env, ends_before_s=CLEAN_UP_S)
