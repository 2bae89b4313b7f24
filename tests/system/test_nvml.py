from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.system.nvml import ask_nvml, normalise_bdf


class NVMLError(Exception):
    pass


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801 - pynvml's spelling
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    pass


@dataclass
class Memory:
    total: int
    free: int


@dataclass
class Pci:
    busId: str | bytes  # noqa: N815


@dataclass
class FakeNvml:
    """Stands where pynvml stands: two GPUs, and failures by function and argument."""

    failing: dict[tuple[Any, ...], Exception] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    NVMLError = NVMLError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            for key in ((name, *arguments), (name,)):
                if key in self.failing:
                    raise self.failing[key]
            return self.answers.get(name, ANSWERS[name](*arguments))

        return call


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlSystemGetDriverVersion": lambda: "580.65.06",
    "nvmlSystemGetCudaDriverVersion_v2": lambda: 13020,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    "nvmlDeviceGetPciInfo": lambda handle: Pci(f"0000000{handle}:1B:00.0"),
    "nvmlDeviceGetName": lambda handle: b"NVIDIA H100",
    "nvmlDeviceGetMemoryInfo": lambda handle: Memory(total=80 << 30, free=79 << 30),
}


def test_every_gpu_is_listed_with_text_decoded_and_addresses_as_the_kernel_spells_them() -> None:
    assert ask_nvml(FakeNvml())["gpus"][1] == {
        "nvml_index": 1,
        "uuid": "GPU-1",
        "bdf": "0001:1b:00.0",
        "name": "NVIDIA H100",
        "memory_total_bytes": 80 << 30,
        "memory_free_bytes": 79 << 30,
    }


def test_the_driver_and_its_newest_cuda_are_given_as_versions() -> None:
    answer = ask_nvml(FakeNvml(answers={"nvmlSystemGetDriverVersion": b"535.1"}))
    assert (answer["driver_version"], answer["cuda_version"]) == ("535.1", "13.2")


def test_a_library_that_does_not_start_is_an_error_with_a_reason() -> None:
    answer = ask_nvml(FakeNvml(failing={("nvmlInit",): NVMLError("Driver Not Loaded")}))
    assert answer == {"error": "NVMLError: Driver Not Loaded"}


def test_one_value_that_is_not_supported_costs_only_itself() -> None:
    answer = ask_nvml(FakeNvml(failing={("nvmlDeviceGetMemoryInfo", 0): NVMLError_NotSupported()}))
    assert "does not offer it" in answer["gpus"][0]["memory_free_bytes"]["unreadable"]
    assert answer["gpus"][0]["uuid"] == "GPU-0"
    assert answer["gpus"][1]["memory_free_bytes"] == 79 << 30


def test_a_gpu_that_cannot_be_opened_is_listed_with_its_reason() -> None:
    answer = ask_nvml(FakeNvml(failing={("nvmlDeviceGetHandleByIndex", 0): NVMLError_GpuIsLost()}))
    assert [gpu["nvml_index"] for gpu in answer["gpus"]] == [0, 1]
    assert "fallen off the bus" in answer["gpus"][0]["unreadable"]


@pytest.mark.parametrize(
    "error", [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), AttributeError("no such function")]
)
def test_what_pynvml_raises_beside_its_own_errors_costs_one_value(error: Exception) -> None:
    answer = ask_nvml(FakeNvml(failing={("nvmlDeviceGetName",): error}))
    assert type(error).__name__ in answer["gpus"][0]["name"]["unreadable"]


def test_nvml_is_shut_down_whatever_happened() -> None:
    library = FakeNvml(failing={("nvmlDeviceGetCount",): NVMLError("Unknown Error")})
    assert "can't be counted" in ask_nvml(library)["error"]
    assert library.calls[-1] == "nvmlShutdown"


@pytest.mark.parametrize(
    ("bus_id", "expected"), [("00000000:1B:00.0", "0000:1b:00.0"), ("00010000:0A:1F.7", "10000:0a:1f.7")]
)
def test_a_bus_id_gets_four_digits_of_domain_unless_it_needs_more(bus_id: str, expected: str) -> None:
    assert normalise_bdf(bus_id) == expected


@given(st.text())
def test_any_other_bus_id_is_unreadable(text: str) -> None:
    with suppress(UnreadableFact):
        assert normalise_bdf(text)
