from __future__ import annotations

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from preflight.model.facts import Gap, Gpu
from preflight.recommend.gpu_env import cuda_places, gpu_env
from preflight.render.env_file import render_env
from tests.gpus import gpu
from tests.reports import advice_of, report_of

ALL = tuple(gpu(i) for i in range(4))
ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def pinned(
    chosen: tuple[Gpu, ...], listed: tuple[Gpu, ...] = ALL, visible: str | None = None
) -> tuple[tuple[str, str], ...]:
    return gpu_env(True, visible, chosen, listed, some_closed=False)


def test_a_strict_subset_is_pinned_by_number_in_the_order_asked_for() -> None:
    assert pinned((ALL[3], ALL[1])) == (("CUDA_VISIBLE_DEVICES", "3,1"), ORDER)


def test_all_gpus_need_no_variable() -> None:
    assert pinned(ALL) == ()


def test_without_gpus_asked_for_nothing_is_pinned() -> None:
    assert gpu_env(False, None, ALL[:2], ALL, some_closed=False) == ()


def test_what_a_scheduler_set_stays() -> None:
    assert pinned(ALL[:2], visible="0,1,2") == ()


def test_numbers_follow_the_bus_where_nvml_counts_otherwise() -> None:
    swapped = (gpu(0, bdf="0000:90:00.0"), gpu(1, bdf="0000:10:00.0"), gpu(2, bdf="10000:01:00.0"))
    assert pinned(swapped[:1], swapped)[0] == ("CUDA_VISIBLE_DEVICES", "1")
    assert pinned(swapped[2:], swapped)[0] == ("CUDA_VISIBLE_DEVICES", "2")


def test_without_a_proof_the_uuid_is_written() -> None:
    unknown = (gpu(0), gpu(1, bdf=Gap("denied")))
    assert pinned(unknown[:1], unknown)[0] == ("CUDA_VISIBLE_DEVICES", "GPU-00000000")
    assert gpu_env(True, None, ALL[:1], ALL, some_closed=True)[0] == ("CUDA_VISIBLE_DEVICES", "GPU-00000000")


@given(st.permutations(range(6)), st.sets(st.integers(0, 5), min_size=1, max_size=5))
def test_the_numbers_mean_the_same_gpus_whatever_the_order(buses: list[int], asked: set[int]) -> None:
    listed = tuple(gpu(i, bdf=f"0000:{bus:02x}:00.0") for i, bus in enumerate(buses))
    by_cuda = sorted(listed, key=lambda each: str(each.bdf))
    (_, numbers), _ = pinned(tuple(listed[i] for i in sorted(asked)), listed)
    assert [by_cuda[int(n)].uuid for n in numbers.split(",")] == [listed[i].uuid for i in sorted(asked)]


def test_the_env_file_exports_them_with_the_gpus_they_mean() -> None:
    advice = advice_of(gpu_env=pinned(ALL[2:]), gpus=("GPU-00000002", "GPU-00000003"))
    text = render_env(report_of(advice=advice))
    assert "# The GPUs that were tried: GPU-00000002, GPU-00000003." in text
    shown = subprocess.run(
        ["sh", "-c", f"{text}\necho $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"], capture_output=True, check=True
    )
    assert shown.stdout == b"2,3 PCI_BUS_ID\n"


def test_two_gpus_of_one_address_have_no_number() -> None:
    assert cuda_places((gpu(0), gpu(1, bdf=gpu(0).bdf))) is None
