"""The five reports that preflight was made for, as the logs that their users must have had."""

from __future__ import annotations

import pytest

from preflight.model.explanation import Explanation
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
    assert "a longer timeout changes nothing" in explanation.causes[0].remedy


def test_a_dead_loader_gets_the_advice_of_one_process() -> None:
    assert "map_num_proc=1" in _seed("3a_xtuner_loader_crash").causes[0].remedy


def test_a_hang_in_a_container_gets_the_advice_of_another_image() -> None:
    assert "In a container" in _seed("3c_xtuner_container").causes[0].remedy


def test_the_advised_1800_s_is_called_what_the_run_died_at() -> None:
    explanation = _seed("4_open_r1_save_timeout")
    assert any("1800 s or less is useless: the run died at 1,800,000 ms" in note for note in explanation.notes)
    assert "--ddp_timeout 3600" in explanation.causes[0].remedy


def test_a_guessed_device_gets_the_three_variables_and_the_command_that_tells_which_are_needed() -> None:
    cause = _seed("5_llama_factory_device_mapping").causes[0]
    assert all(name in cause.remedy for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE"))
    assert "preflight check --gpus 6,7,8,9" in cause.confirm_with
