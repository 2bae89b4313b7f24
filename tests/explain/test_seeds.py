"""The five reports that preflight was made for, as the logs that their users must have had."""

from __future__ import annotations

import pytest

from preflight.model.explanation import Explanation
from preflight.model.job import Job, Save
from preflight.timeout.job_text import parse_params
from preflight.timeout.safe_timeout import safe_timeout
from preflight.timeout.timings import timings
from tests.explain.logs import SEEDS, explain_bytes

CAUSES = {
    "1_qwen_vl_oom_behind_timeout": "cuda_oom_masked",
    "2_llama2_accessory_save_timeout": "checkpoint_save_timeout",
    "3a_xtuner_loader_crash": "dataset_worker_died",
    "3b_xtuner_oom": "cuda_oom_masked",
    "3c_xtuner_container": "p2p_broken",
    "4_open_r1_save_timeout": "checkpoint_save_timeout",
    "5_llama_factory_device_mapping": "device_mapping_unknown",
}


def _seed(name: str) -> Explanation:
    return explain_bytes((SEEDS / f"{name}.log").read_bytes(), name)


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_the_true_cause_is_named_first(name: str) -> None:
    explanation = _seed(name)
    assert [cause.cause for cause in explanation.causes][:1] == [CAUSES[name]]
    assert explanation.exit_code == 1


def test_the_timeout_behind_an_oom_is_called_a_consequence() -> None:
    explanation = _seed("1_qwen_vl_oom_behind_timeout")
    assert "watchdog_timeout_straggler" in [item.cause for item in explanation.consequences]
    assert "A longer timeout does not help" in explanation.causes[0].remedy


def test_a_dead_loader_gets_the_advice_of_one_process() -> None:
    assert "map_num_proc=1" in _seed("3a_xtuner_loader_crash").causes[0].remedy


def test_a_hang_in_a_container_gets_the_advice_of_another_image() -> None:
    assert "In a container" in _seed("3c_xtuner_container").causes[0].remedy


def test_the_advised_1800_s_is_called_what_the_run_died_at() -> None:
    explanation = _seed("4_open_r1_save_timeout")
    assert any("1800 s or less does not help: the run already had 1800 s" in note for note in explanation.notes)
    assert "--ddp_timeout 3600" in explanation.causes[0].remedy


@pytest.mark.parametrize(
    ("name", "since", "job"),
    [
        ("2_llama2_accessory_save_timeout", "15:05:47", "N --world-size 8 --checkpoint-dir DIR"),
        ("4_open_r1_save_timeout", "06:11:01",
         "1.5B --world-size 8 --checkpoint-dir data/Qwen2.5-1.5B-Open-R1-Distill"),
    ],
)  # fmt: skip
def test_a_run_that_stopped_around_a_save_is_told_who_is_missing_and_no_more_than_that(
    name: str, since: str, job: str
) -> None:
    cause = _seed(name).causes[0]
    assert f"stopped during or after a checkpoint: rank 0 has been missing since {since}" in cause.verdict
    assert "took longer" not in cause.verdict
    assert f"preflight timeout --params {job} --current 1800" in cause.remedy.splitlines()[0]


def test_explain_does_not_call_slow_what_timeout_says_is_quick() -> None:
    job = Job(params=parse_params("1.5B"), save=Save.FULL, world_size=8)
    answer = safe_timeout(job, timings(None, 0, None, {}), 1800.0)
    assert "waited for something else" in answer.verdict
    first = _seed("4_open_r1_save_timeout").causes[0].remedy.splitlines()[0]
    assert "the missing rank died or waited for something else" in first


def test_no_log_is_told_the_gpus_of_another_machine() -> None:
    warning = (
        "[rank1]:[W304 17:41:12.7 ProcessGroupNCCL.cpp:4561]  using GPU 1 to perform barrier as devices used by this "
        "process are currently unknown."
    )
    for text, gpus in (("", None), ("CUDA_VISIBLE_DEVICES=0,1\n", "0,1"), ("CUDA_VISIBLE_DEVICES: [2]\n", "2")):
        cause = explain_bytes(f"{text}{warning}\n{warning.replace('1', '0')}\n".encode()).causes[0]
        assert cause.cause == "device_mapping_unknown"
        assert ("--gpus" in cause.confirm_with) is (gpus is not None)
        assert f"--gpus {gpus}" in cause.confirm_with or gpus is None


def test_a_guessed_device_gets_the_three_variables_and_the_command_that_tells_which_are_needed() -> None:
    cause = _seed("5_llama_factory_device_mapping").causes[0]
    assert all(name in cause.remedy for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE"))
    assert "preflight check --gpus 6,7,8,9" in cause.confirm_with
