"""The page of `preflight timeout`, and its document."""

from __future__ import annotations

import dataclasses
import json

import pytest

from preflight.model.fit import Fit, FitVerdict, Headroom
from preflight.model.gap import Gap
from preflight.model.job import Job, ParamCount, Save, Strategy
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import SafeTimeout
from preflight.show.screen import ROWS
from preflight.show.text import Detail, Style, width_of
from preflight.show.timeout import ShownTimeout, render_timeout_json, timeout_page
from preflight.timeout.memory import will_it_fit
from preflight.timeout.safe_timeout import safe_timeout, storage_range
from preflight.timeout.timings import timings
from preflight.timeout.wording import NOT_TO_RAISE, unmeasured
from tests.show.outputs import keep_screen
from tests.timeout.test_safe_timeout import FAST, NOTHING

JOB = Job(params=ParamCount(7 * 10**9, 7 * 10**9), strategy=Strategy.FSDP, world_size=64, eval_s=600.0)
FIT = will_it_fit(JOB, Headroom(8, 80 << 30, "free on GPU 0", 64 << 30, "MemAvailable"))
SAFE = {
    "nothing": safe_timeout(Job(), NOTHING),
    "all": safe_timeout(JOB, FAST, 1800),
    "capped": safe_timeout(Job(preprocess_s=1800), NOTHING),
    "not_enough": safe_timeout(Job(eval_s=7200), NOTHING, versions={"torch": "2.14.1", "deepspeed": "0.19.8"}),
    "slow": safe_timeout(JOB, dataclasses.replace(FAST, write_one_bytes_per_s=90e6, directory="/mnt/" + "x" * 90)),
}


def page(safe: SafeTimeout, width: int = 80, unicode: bool = True) -> str:
    shown = ShownTimeout(safe, JOB, "7B", FIT, not_to_raise=NOT_TO_RAISE, not_measured=unmeasured(NOTHING))
    return timeout_page(shown).shown(Detail.ALL, Style(width, unicode=unicode))


def screen(shown: ShownTimeout, width: int = 80) -> str:
    return timeout_page(shown).shown(Detail.SCREEN, Style(width))


@pytest.mark.parametrize("name", sorted(SAFE))
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(width_of(line) for line in page(SAFE[name], width).splitlines()) <= width


@pytest.mark.parametrize("name", sorted(SAFE))
def test_every_term_and_every_framework_is_on_the_page(name: str) -> None:
    shown = " ".join(page(SAFE[name], 120).split())
    for term in SAFE[name].terms:
        assert term.name in shown
        assert " ".join(term.detail.split()) in shown or "/mnt/x" in term.detail
    assert all(each.line in shown for each in SAFE[name].frameworks)


def test_the_first_line_is_the_answer() -> None:
    assert page(SAFE["all"]).startswith("SAFE TIMEOUT  1920 s for collectives, 600 s for the job's start\n")
    assert page(SAFE["not_enough"]).startswith(
        "NO SAFE TIMEOUT  the job needs 21720 s; preflight advises at most 3600 s"
    )


def test_a_page_in_ascii_is_ascii() -> None:
    assert page(SAFE["all"], unicode=False).isascii()


def test_the_document_has_the_keys_that_others_rely_on() -> None:
    storage = StorageSpeed("/ckpt", 8, 1 << 30, 1e9, 2e9, 3e9, 4e9, 5.0)
    measured = timings(None, 0, storage, {})
    safe = safe_timeout(JOB, measured)
    document = json.loads(render_timeout_json(safe, JOB, measured, storage))
    assert (document["init_timeout_s"], document["pg_timeout_s"]) == (safe.init_timeout_s, safe.pg_timeout_s)
    assert list(document["frameworks"]) == [each.name for each in safe.frameworks]
    assert document["frameworks"]["deepspeed"]["unit"] == "min"
    assert all({"name", "value", "unit", "source", "counts_s"} <= term.keys() for term in document["terms"])
    assert {"fact": "frameworks.deepspeed.default_s", "reason": safe.frameworks[4].default_s.reason} in document["gaps"]  # type: ignore[union-attr]
    assert {gap["fact"] for gap in document["gaps"]} >= {"measured.collective_s", "measured.connect_s"}
    assert (document["job"]["params"]["total"], document["storage"]["directory"]) == (7 * 10**9, "/ckpt")


def test_a_document_without_a_job_or_storage_is_one_too() -> None:
    document = json.loads(render_timeout_json(SAFE["nothing"], Job(), NOTHING, None))
    assert document["storage"] is None
    assert {"fact": "checkpoint_bytes", "reason": "--params was not given"} in document["gaps"]


def test_saving_sharded_is_told_as_such() -> None:
    job = dataclasses.replace(JOB, save=Save.SHARDED)
    assert "all ranks together write it at 4.00 GB/s" in " ".join(page(safe_timeout(job, FAST), 120).split())


def test_a_mixture_of_experts_is_told_with_all_and_active_or_as_an_upper_bound() -> None:
    experts = dataclasses.replace(JOB, params=ParamCount(47 * 10**9, 13 * 10**9))
    told = timeout_page(ShownTimeout(SAFE["all"], experts, "47B/13B")).shown(Detail.ALL, Style(120))
    assert "For 47.0 B parameters, 13.0 B of them active; bf16, adamw, fsdp, full checkpoint; 64 ranks" in told
    experts = dataclasses.replace(JOB, params=ParamCount(56 * 10**9, 56 * 10**9))
    told = timeout_page(ShownTimeout(SAFE["all"], experts, "8x7B")).shown(Detail.ALL, Style(120))
    assert "at most (8x7B: every expert as a whole model)" in told


def test_whether_it_fits_is_a_section_of_the_page_and_a_key_of_the_document() -> None:
    assert "\nWill it fit\n" in page(SAFE["all"])
    document = json.loads(render_timeout_json(SAFE["all"], JOB, FAST, None, FIT))
    assert document["fit"]["verdict"] == FIT.verdict.value
    document = json.loads(render_timeout_json(SAFE["all"], JOB, FAST, None, Gap("8x7B")))
    assert (document["fit"], document["gaps"][-1]["fact"]) == (None, "fit")


@pytest.mark.parametrize("name", sorted(SAFE))
def test_the_first_screen_is_the_expected_one(name: str) -> None:
    keep_screen(f"timeout_{name}", screen(ShownTimeout(SAFE[name], JOB, "7B")))


def test_where_the_storage_was_not_measured_the_screen_gives_the_range_and_what_measures_it() -> None:
    job = dataclasses.replace(JOB, world_size=8, eval_s=0.0)
    remarks = (storage_range(job, NOTHING, {}),)
    keep_screen("timeout_unmeasured", screen(ShownTimeout(safe_timeout(job, NOTHING), job, "7B", remarks=remarks)))


@pytest.mark.parametrize("name", sorted(SAFE))
@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_first_screen_is_one_whether_it_fits_or_not(name: str, width: int) -> None:
    small = will_it_fit(JOB, Headroom(8, 64 << 20, "free on GPU 0", 64 << 30, "MemAvailable"))
    assert isinstance(small, Fit) and small.verdict is FitVerdict.CANNOT_FIT
    for fit in (FIT, small):
        told = screen(ShownTimeout(SAFE[name], JOB, "7B", fit, ("Taken for " * 30,)), width).splitlines()
        assert len(told) <= ROWS
        assert all(width_of(line) <= width for line in told)
    assert "make the job smaller first" in " ".join(" ".join(told).split())


def test_the_answer_alone_is_one_line() -> None:
    pages = [
        timeout_page(ShownTimeout(SAFE[name], JOB)).shown(Detail.VERDICT, Style()) for name in ("nothing", "not_enough")
    ]
    assert pages[0] == "SAFE TIMEOUT  600 s for collectives, 600 s for the job's start\n"
    assert (
        pages[1].startswith("NO SAFE TIMEOUT  the job needs 21720 s; preflight advises at most 3600 s")
        and pages[1].count("\n") == 1
    )


@pytest.mark.parametrize("name", sorted(SAFE))
def test_the_first_screen_has_the_answer_the_largest_terms_and_the_line_that_was_asked_for(name: str) -> None:
    safe = SAFE[name]
    told = screen(ShownTimeout(safe, JOB, "7B", remarks=("Taken for 64 ranks",), framework="deepspeed"))
    assert told.splitlines()[0] == page(safe).splitlines()[0]
    assert len(told.splitlines()) <= 24
    assert "Taken for 64 ranks" in told
    assert "deepspeed" in told and "torchtitan" not in told
    assert sum(term.name in told for term in safe.terms) >= 3


def test_the_range_of_what_was_not_measured_is_told_where_it_matters() -> None:
    job = Job(params=ParamCount(7 * 10**9, 7 * 10**9), strategy=Strategy.FSDP, world_size=16)
    says = storage_range(job, NOTHING, {})
    assert says.startswith("The checkpoint storage is assumed to be slow (200 MB/s). With a local NVMe (2.00")
    assert storage_range(job, FAST, {}) == ""
    assert storage_range(Job(), NOTHING, {}) == ""


def test_a_pause_that_no_cap_covers_is_told_the_number_that_would() -> None:
    assert "Shorten the evaluation, or let no other rank wait for it" in SAFE["not_enough"].verdict


def test_what_is_assumed_of_shards_grows_with_the_nodes() -> None:
    large = Job(params=ParamCount(405 * 10**9, 405 * 10**9), strategy=Strategy.FSDP, save=Save.SHARDED, world_size=512)
    (saving,) = [term for term in safe_timeout(large, NOTHING).terms if term.name == "checkpoint"]
    assert saving.value == pytest.approx(405e9 * 14 / (64 * 0.2e9), rel=0.01)
    assert "200 MB/s for each of 64 nodes" in saving.detail
