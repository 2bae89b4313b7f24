"""A GPU that is slowed down by heat or its power supply holds up all others. Idle and power cap are normal."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity

HARDWARE = {
    "hw_slowdown": "the hardware slows it down",
    "hw_thermal_slowdown": "it is too hot",
    "hw_power_brake_slowdown": "the power supply asks it to use less",
}
SOFTWARE = {"sw_thermal_slowdown": "the driver slows it down since it is hot"}


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL for a chosen GPU that its hardware slows down, a WARN where the driver does for heat."""
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        reasons = () if isinstance(gpu.throttle_reasons, Gap) else gpu.throttle_reasons
        told = [(HARDWARE | SOFTWARE)[reason] for reason in reasons if reason in HARDWARE | SOFTWARE]
        if told:
            by_hardware = any(reason in HARDWARE for reason in reasons)
            yield _finding(node, gpu, " and ".join(told), reasons, by_hardware)
    must_be_known(((gpu, gpu.throttle_reasons) for gpu in gpus), "throttle reasons")


def _finding(node: NodeFacts, gpu: Gpu, told: str, reasons: tuple[str, ...], by_hardware: bool) -> Finding:
    heat = "?" if isinstance(gpu.temperature_c, Gap) else f"{gpu.temperature_c} °C"
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.FAIL if by_hardware else Severity.WARN,
        subject=subject(node, gpu),
        problem=f"slower than asked for: {told} ({heat})",
        fix="look at fans, air or water flow and the power supplies' state in the BMC; `nvidia-smi -q -d PERFORMANCE` "
        "shows when it is gone",
        evidence=(
            Evidence("throttle reasons", ", ".join(reasons), "nvmlDeviceGetCurrentClocksEventReasons"),
            Evidence("temperature", heat, "nvmlDeviceGetTemperature"),
        ),
    )


CHECK = NodeCheck(
    name="gpu-throttled",
    promise="neither heat nor the power supply slows a chosen GPU down",
    blame=Blame.HOST,
    reads=("gpus",),
    blind_to="what happens under load: the probe looks at an idle GPU",
    judge=judge,
)
