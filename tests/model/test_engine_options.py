"""The options of serving engines: each row says where it was read, and a fault has the rows of its engine."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from preflight.explain.cause import all_causes
from preflight.explain.explain_logs import Log, explain
from preflight.model.engine_options import CAUSES, ENGINE_OPTIONS, SETTINGS, Engine, Fault, options_for
from preflight.model.nccl_variables import BY_NAME
from preflight.show.check_page import JobToStart, Written, check_page
from preflight.show.text import Detail, Style
from tests.hardware import pair
from tests.reports import advice_of, report_of

NEEDED = advice_of(env=(("NCCL_P2P_DISABLE", "1"),))


def page(engine: Engine | None, **parts: object) -> str:
    report = replace(report_of(), **parts)  # type: ignore[arg-type]
    return check_page(report, Written(), JobToStart(engine=engine)).shown(Detail.SCREEN, Style(width=100))


def test_each_row_says_in_which_versions_and_where_it_was_read() -> None:
    assert all(re.fullmatch(r"\d+\.\d+\.\d+[^;]*", row.versions) and row.source for row in ENGINE_OPTIONS)
    assert {(row.engine, row.fault) for row in ENGINE_OPTIONS} == {(e, f) for e in Engine for f in Fault}


def test_what_calls_for_a_row_is_a_cause_of_explain_or_a_variable_that_preflight_knows() -> None:
    assert CAUSES.keys() <= {cause.id for cause in all_causes()}
    assert {name for name in SETTINGS if name.startswith("NCCL_")} <= BY_NAME.keys()


def test_an_option_that_two_faults_need_is_named_once() -> None:
    options = [row.option for row in options_for(Engine.VLLM, set(Fault))]
    assert len(options) == len(set(options)) and "export VLLM_ALLREDUCE_USE_SYMM_MEM=0" in options


@pytest.mark.parametrize("engine", Engine)
def test_where_p2p_was_switched_off_the_page_names_the_engines_own_switch_and_that_it_was_not_tried(
    engine: Engine,
) -> None:
    shown = page(engine, advice=NEEDED)
    assert "--disable-custom-all-reduce" in shown and "not tried" in shown
    other = next(each for each in Engine if each is not engine)
    assert f"{other.value}:" not in shown


def test_a_pair_that_loses_data_calls_for_it_also_where_nccl_needs_no_setting() -> None:
    assert "--disable-custom-all-reduce" in page(Engine.VLLM, p2p=(pair(0, 1, problem="lost"),))
    assert "--disable-custom-all-reduce" not in page(Engine.VLLM, p2p=(pair(0, 1),))


def test_without_an_engine_or_a_fault_no_option_of_one_is_named() -> None:
    assert "custom-all-reduce" not in page(None, advice=NEEDED)
    assert "vllm" not in page(Engine.VLLM)


def test_explain_names_the_option_of_the_engine_whose_log_it_is_and_of_no_other() -> None:
    broken = "n1:1:2 [0] NCCL INFO Could not enable P2P between dev 0(=1000) and dev 1(=2000)\n"
    for first, option in (
        ("(APIServer pid=1) INFO vLLM API server version 0.22.0\n", True),
        ("torchrun t.py\n", False),
    ):
        explained = explain([Log("a.log", [(first + broken).encode()])])
        assert explained.causes and explained.causes[0].cause == "p2p_broken"
        assert ("vllm: --disable-custom-all-reduce" in explained.causes[0].remedy) == option
