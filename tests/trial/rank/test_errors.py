"""What a rank's exception says of it: that it failed by itself, timed out waiting, or lost a peer; and how."""

from __future__ import annotations

import pytest
import torch

from preflight.trial.rank.trial import device_options, kind_of, line_of

NCCL = (
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {short} (run with NCCL_DEBUG=INFO for details), "
    "NCCL version 2.27.5\n{name}: System call failed. \nLast error:\n{last}"
)
SYSTEM, REMOTE = ("unhandled system error", "ncclSystemError"), ("remote process exited", "ncclRemoteError")


def nccl(which: tuple[str, str], last: str) -> RuntimeError:
    return RuntimeError(NCCL.format(short=which[0], name=which[1], last=last))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (nccl(SYSTEM, "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1"), "error"),
        (nccl(SYSTEM, "socketPollConnect: Connect to 10.0.0.1<5> returned Connection timed out"), "error"),
        (nccl(SYSTEM, "socketProgress: Connection closed by remote peer node<1>"), "connection"),
        (nccl(REMOTE, "NET/IB : Got completion from peer with status=12"), "connection"),
        (RuntimeError("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"), "timeout"),
        (RuntimeError("[gloo] Timed out waiting 1400ms for recv operation"), "timeout"),
        (TypeError("timeout must be a timedelta"), "error"),
    ],
)
def test_an_error_of_nccls_own_is_a_cause_even_where_it_says_timed_out(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_of_an_nccl_error_the_last_words_are_kept_for_they_are_the_cause() -> None:
    assert line_of(nccl(SYSTEM, "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)")) == (
        "NCCL unhandled system error: Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)"
    )


@pytest.mark.parametrize("text", ["", "\n", "NCCL error in: x", "NCCL error in: x\nLast error:\n\n", "one\ntwo"])
def test_any_text_gives_one_line(text: str) -> None:
    assert "\n" not in line_of(RuntimeError(text))


def test_the_group_is_told_its_gpu_so_that_what_fails_in_nccls_start_fails_in_the_stage_init() -> None:
    gpu = torch.device("cuda", 1)
    assert device_options(gpu) == {"device_id": gpu}, "torch from 2.3 on takes it"
    assert device_options(torch.device("cpu")) == {}


@pytest.mark.parametrize(("version", "is_given"), [("2.6.0", True), ("2.7.0+cu126", False), ("2.7.1", True)])
def test_a_torch_that_hangs_where_a_group_is_given_its_gpu_is_not_given_it(
    monkeypatch: pytest.MonkeyPatch, version: str, is_given: bool
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert bool(device_options(torch.device("cuda", 0))) == is_given
