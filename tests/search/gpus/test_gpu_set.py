"""Which GPUs `--gpus` and CUDA_VISIBLE_DEVICES choose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.search.gpus.gpu_set import choose_gpus, visible_gpus
from tests.gpus import gpu

TEN = tuple(gpu(index) for index in range(10))
ALIKE = (replace(gpu(0), uuid="GPU-aa11"), replace(gpu(1), uuid="GPU-aa22"), replace(gpu(2), uuid="GPU-bb33"))
WORDS = st.text(max_size=20) | st.text(alphabet="0123456789,- GPU+\n٣", max_size=20)


def chosen(text: str | None, visible: str | None = None) -> list[int]:
    return [each.nvml_index for each in choose_gpus(text, visible, TEN)]


def seen(visible: str | None) -> list[int]:
    return [each.nvml_index for each in visible_gpus(visible, TEN)]


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("6,7,8,9", [6, 7, 8, 9]),
        ("0-3", [0, 1, 2, 3]),
        ("8-9,0,2-3", [8, 9, 0, 2, 3]),
        ("9,0", [9, 0]),
        (" 1 , 2 ", [1, 2]),
        ("4-4", [4]),
        ("GPU-00000003,5", [3, 5]),
    ],
)
def test_gpus_come_in_the_order_asked_for(text: str, indices: list[int]) -> None:
    assert chosen(text) == indices


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("10", "there is no GPU 10; NVML lists 0, 1"),
        ("8-12", "there is no GPU 10"),
        ("3-1", "smaller index first"),
        ("0-999999", "no range"),
        ("1,1", "GPU 1 is named twice"),
        ("0-3,2", "GPU 2 is named twice"),
        ("3,GPU-00000003", "GPU 3 is named twice"),
        ("", "names no GPU"),
        ("1,", "names no GPU"),
        ("-1", "names no GPU"),
        ("all", "names no GPU"),
        ("GPU-ffff", "names no GPU"),
        ("MIG-00000001", "names no GPU"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_that_says_why(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        chosen(text)


def test_the_unique_start_of_a_uuid_is_enough_and_an_ambiguous_one_is_not() -> None:
    assert choose_gpus("GPU-b", None, ALIKE) == (ALIKE[2],)
    with pytest.raises(UsageError, match="start of 2 UUIDs"):
        choose_gpus("GPU-aa", None, ALIKE)


def test_a_gpu_that_cuda_visible_devices_hides_cannot_be_chosen() -> None:
    assert chosen("1", visible="0,1") == [1]
    with pytest.raises(UsageError, match="hides GPU 2"):
        chosen("1,2", visible="0,1")


def test_without_a_choice_all_that_cuda_would_see_are_used_in_its_order() -> None:
    assert chosen(None) == list(range(10))
    assert chosen(None, visible="7,6") == [7, 6]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, list(range(10))),
        ("", []),
        (" ", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,2,-1,1", [0, 2]),
        ("0,99,1", [0]),
        ("1,1", []),
        ("0,1,0", []),
        ("0, 1", [0, 1]),
        ("01,1gpu2", []),
        ("1gpu2,2ampere", [1, 2]),
        ("GPU-00000004,GPU-00000002", [4, 2]),
        ("GPU-00000004,2", [4]),
        ("2,GPU-00000004", [2]),
        ("GPU-", []),
        ("MIG-1234", []),
    ],
)
def test_cuda_visible_devices_means_what_it_means_to_cuda(visible: str | None, indices: list[int]) -> None:
    assert seen(visible) == indices


@given(WORDS, st.none() | WORDS)
@example("٣", None)
@example("0-" + "9" * 5000, "9" * 5000)
def test_any_text_gives_distinct_gpus_or_a_usage_error(text: str, visible: str | None) -> None:
    try:
        indices = chosen(text, visible)
    except UsageError as error:
        assert str(error).startswith("--gpus")
    else:
        assert indices
        assert len(set(indices)) == len(indices)


@given(WORDS)
def test_any_cuda_visible_devices_shows_distinct_gpus(visible: str) -> None:
    assert len(set(seen(visible))) == len(seen(visible))


@given(st.permutations(range(10)), st.integers(1, 10))
def test_indices_written_out_are_read_back(order: list[int], count: int) -> None:
    wanted = order[:count]
    text = ",".join(map(str, wanted))
    assert chosen(text) == seen(text) == wanted
