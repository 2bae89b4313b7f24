"""The real pynvml through real ctypes, on a library that answers as scripted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import NotRecorded, UnreadableFact
from preflight.system.kernel_queries import tree_machine
from preflight.system.machine import Json
from preflight.system.nvml import unreadable
from preflight.system.nvml_values import as_text, normalise_bdf
from tests.nvmlsim.machine import DIE, FUNCTION_NOT_FOUND, GPU_IS_LOST, HANG, NO_PERMISSION, NOT_SUPPORTED
from tests.nvmlsim.machines import A100X4, H100X8, RTX4090X2, V100X4
from tests.nvmlsim.simulate import LIBRARY, simulate

pytestmark = pytest.mark.heavy(4)


def ask(tmp_path: Path, *defines: str, **answers: str) -> Json:
    """Return what the two-GPU machine answers; in a call's name `__` stands for `/`."""
    scripted = {key.replace("__", "/"): value for key, value in answers.items()}
    return simulate(replace(RTX4090X2, answers=scripted), tmp_path, *defines).ask("nvml")


def unread(document: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the path and the entry of everything that could not be read and that a 4090 does offer."""
    if isinstance(document, dict) and "unreadable" in document:
        yield path, document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from unread(value, f"{path}.{key}")
    elif isinstance(document, list):
        for i, value in enumerate(document):
            yield from unread(value, f"{path}[{i}]")


def test_every_gpu_is_listed_with_addresses_as_the_kernel_spells_them(tmp_path: Path) -> None:
    answer = ask(tmp_path)
    assert (answer["driver_version"], answer["cuda_version"]) == ("580.95.05", "13.0")
    assert [gpu["bdf"] for gpu in answer["gpus"]] == ["0000:18:00.0", "0000:28:00.0"]
    assert answer["gpus"][1]["uuid"].startswith("GPU-00000001-")
    assert [pair["ancestor"] for pair in answer["pairs"]] == [30]


ERRORS = {
    NOT_SUPPORTED: "does not report this",
    NO_PERMISSION: "may not use it",
    GPU_IS_LOST: "fallen off the bus",
    FUNCTION_NOT_FOUND: "too old to know it",
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("value", ["Name", "BAR1MemoryInfo", "CpuAffinity", "MinorNumber"])
def test_an_error_in_one_call_costs_that_value_and_no_other(tmp_path: Path, value: str, error: str) -> None:
    healthy = {path for path, _ in unread(ask(tmp_path / "healthy"))}
    entries = [e for e in unread(ask(tmp_path, **{f"nvmlDeviceGet{value}__0": error})) if e[0] not in healthy]
    assert len(entries) == 1, entries
    assert ERRORS[error] in entries[0][1]["unreadable"]


@pytest.mark.timing
@pytest.mark.parametrize(
    ("call", "how"),
    [("Name__0", HANG), ("P2PStatus__0__1__0", HANG), ("Name__0", DIE), ("FieldValues__1__230", DIE)],
)
def test_a_call_that_hangs_or_kills_costs_one_value_and_is_not_made_again(tmp_path: Path, call: str, how: str) -> None:
    healthy = {path for path, _ in unread(ask(tmp_path / "healthy"))}
    scripted = {f"nvmlDeviceGet{call}".replace("__", "/"): how}
    tree = simulate(replace(RTX4090X2, answers=scripted), tmp_path)
    calls = tmp_path / f"{LIBRARY}.calls"
    calls.touch()
    start = time.monotonic()
    entries = [e for e in unread(tree.ask("nvml")) if e[0] not in healthy]
    assert time.monotonic() - start < 5
    assert len(entries) == 1, entries
    assert ("hangs" if how == HANG else "died") in entries[0][1]["unreadable"]
    assert calls.read_text().split().count(next(iter(scripted))) == 1
    assert calls.read_text().split().count("nvmlDeviceGetUUID/0") == 1


@pytest.mark.timing
def test_a_function_that_hangs_on_every_gpu_is_given_up_and_all_else_is_read(tmp_path: Path) -> None:
    scripted = {f"nvmlDeviceGetName/{i}": HANG for i in range(8)}
    start = time.monotonic()
    answer = simulate(replace(H100X8, answers=scripted), tmp_path).ask("nvml")
    assert time.monotonic() - start < 5
    assert ["hung 2 times before" in gpu["name"]["unreadable"] for gpu in answer["gpus"]] == [False] * 2 + [True] * 6
    assert all(isinstance(gpu["minor"], int) for gpu in answer["gpus"])
    assert len(answer["pairs"]) == 28


@pytest.mark.timing
def test_a_gpu_on_which_everything_hangs_does_not_cost_the_others(tmp_path: Path) -> None:
    simulate(RTX4090X2, tmp_path)
    description = tmp_path / f"{LIBRARY}.machine"
    lines = description.read_text().splitlines()
    stuck = [line.split(" ")[0] + " hang" if "/0" in line and "Handle" not in line else line for line in lines]
    description.write_text("\n".join(stuck) + "\n")
    start = time.monotonic()
    answer = tree_machine(tmp_path).ask("nvml")
    assert time.monotonic() - start < 5
    assert answer["gpus"][1]["name"] == "NVIDIA GeForce RTX 4090"
    assert "other calls on this GPU hung" in answer["gpus"][0]["name"]["unreadable"]


@pytest.mark.timing
@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
@pytest.mark.parametrize("how", [HANG, DIE, "!9"])
def test_a_library_that_does_not_start_is_an_error_with_a_reason(tmp_path: Path, call: str, how: str) -> None:
    start = time.monotonic()
    reason = ask(tmp_path, **{call: how})["error"]
    assert time.monotonic() - start < 5
    assert {HANG: "hangs", DIE: "died", "!9": "kernel module is not loaded"}[how] in reason


@pytest.mark.parametrize("how", [HANG, DIE, GPU_IS_LOST])
def test_a_gpu_that_cannot_be_opened_is_listed_with_its_reason(tmp_path: Path, how: str) -> None:
    answer = ask(tmp_path, nvmlDeviceGetHandleByIndex__0=how)
    assert "unreadable" in answer["gpus"][0]
    assert answer["gpus"][1]["name"] == "NVIDIA GeForce RTX 4090"
    assert answer["pairs"] == []


def test_an_old_driver_is_asked_with_the_calls_that_it_knows(tmp_path: Path) -> None:
    answer = simulate(V100X4, tmp_path, "-DOLD_DRIVER").ask("nvml")["gpus"][0]
    assert "reserved_bytes" not in answer["memory"]
    assert answer["memory"]["total_bytes"] == 16384 << 20
    assert answer["throttle_reasons"] == 1
    assert answer["processes"] == []
    assert "too old to know it" in answer["fabric"]["unreadable"]


def test_links_are_looked_for_beyond_one_that_is_not_there(tmp_path: Path) -> None:
    sparse = replace(A100X4, answers={"nvmlDeviceGetNvLinkState/0/3": NOT_SUPPORTED})
    links = simulate(sparse, tmp_path).ask("nvml")["gpus"][0]["nvlinks"]
    assert [link["link"] for link in links] == [0, 1, 2, *range(4, 12)]


def test_a_driver_without_nvlink_calls_is_no_gpu_without_links(tmp_path: Path) -> None:
    old = replace(A100X4, answers={"nvmlDeviceGetNvLinkState/0/0": FUNCTION_NOT_FOUND})
    assert "too old" in simulate(old, tmp_path).ask("nvml")["gpus"][0]["nvlinks"]["unreadable"]


def test_a_tree_without_a_library_of_its_own_never_asks_this_machines(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded):
        tree_machine(tmp_path).ask("nvml")


def test_a_tree_whose_library_is_no_library_says_so(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_text("not ELF")
    assert "OSError" in tree_machine(tmp_path).ask("nvml")["error"]


def test_text_that_is_not_utf_8_costs_one_value(tmp_path: Path) -> None:
    simulate(RTX4090X2, tmp_path)
    description = tmp_path / f"{LIBRARY}.machine"
    description.write_bytes(description.read_bytes().replace(b"NVIDIA GeForce", b"NVIDIA \xff\xfe"))
    answer = tree_machine(tmp_path).ask("nvml")
    assert "UnicodeDecodeError" in answer["gpus"][0]["name"]["unreadable"]
    assert answer["gpus"][0]["minor"] == 0


@pytest.mark.parametrize("error", [UnreadableFact("why"), ValueError(), OSError(5, "x")])
def test_a_reason_is_always_given(error: Exception) -> None:
    assert unreadable(error)["unreadable"]


@pytest.mark.parametrize(
    ("bus_id", "expected"), [("00000000:1B:00.0", "0000:1b:00.0"), ("00010000:0A:1F.7", "10000:0a:1f.7")]
)
def test_a_bus_id_gets_four_digits_of_domain_unless_it_needs_more(bus_id: str, expected: str) -> None:
    assert normalise_bdf(bus_id) == expected


@given(st.text())
def test_any_other_bus_id_is_unreadable(text: str) -> None:
    with suppress(UnreadableFact):
        assert normalise_bdf(text)


@given(st.text() | st.binary())
def test_text_of_any_pynvml_is_text(value: str | bytes) -> None:
    assert isinstance(as_text(value), str)
