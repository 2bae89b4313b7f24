"""What the third review found: logs composed with the facts of the reviewers' cases."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path

import pytest

from preflight.explain.explain_files import explain_paths
from preflight.model.explanation import ExplainVerdict, Explanation
from preflight.show.explain import explain_page
from preflight.show.text import Detail, Style
from tests.explain.logs import explain_bytes, status, watchdog

HEADER = "Traceback (most recent call last):"
GLOO = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 20000ms for recv operation to complete"
)


def said(lines: Iterable[str]) -> Explanation:
    """Return what explain says of some lines."""
    return explain_bytes("\n".join(lines).encode() + b"\n")


def first(explanation: Explanation) -> str:
    """Return the first cause, the verdict where none is named."""
    return explanation.causes[0].cause if explanation.causes else explanation.verdict.value


def quoted(explanation: Explanation) -> str:
    """Return the first line that proves the first cause."""
    return explanation.causes[0].evidence[0].text if explanation.causes else ""


def page(explanation: Explanation) -> str:
    """Return the page without its line breaks."""
    return " ".join(explain_page(explanation).shown(Detail.ALL, Style()).split())


def raised(rank: int, frame: str, error: str) -> list[str]:
    """Return a rank's traceback that ends in a frame of the program and in one of torch."""
    inner = '  File "/opt/torch/distributed/distributed_c10d.py", line 2810, in wrapper'
    return [f"[rank{rank}]: {line}" for line in (HEADER, f'  File "{frame}', inner, error)]


def torchrun(rank: int, exitcode: int = 1) -> list[str]:
    """Return the table in which torchrun names the ranks that failed."""
    head = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: two.py FAILED"
    return [head, f"  rank      : {rank} (local_rank: {rank})", f"  exitcode  : {exitcode} (pid: 812)"]


def test_a_ray_workers_own_abort_is_the_cause_and_not_raylets_echo_of_it() -> None:
    worker = "(RayWorkerWrapper pid=451, ip=10.4.0.9) "
    explanation = said((
        f"{worker}free(): double free detected in tcache 2",
        f"{worker}*** SIGABRT received at time=1760000000 on cpu 12 ***",
        f"{worker}Fatal Python error: Aborted",
        f'{worker}  File "/opt/vllm/pynccl_wrapper.py", line 277 in ncclCommInitRank',
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
    ))  # fmt: skip
    assert first(explanation) == "segfault_worker"
    assert "double free detected" in quoted(explanation)


def test_a_rank_that_completed_a_collective_in_which_another_waits_took_another_path() -> None:
    explanation = said((
        watchdog(0, seq=512, op="BROADCAST", numel=64), status(0, 512, 512, 511),
        watchdog(1, seq=511, op="ALLREDUCE"), status(1, 511, 511, 510),
    ))  # fmt: skip
    assert first(explanation) == "collective_mismatch"


def test_an_abort_alone_or_after_the_watchdog_is_no_crash_of_its_own() -> None:
    abort = ("Fatal Python error: Aborted", '  File "/opt/app/train.py", line 4 in step')
    assert first(said(abort)) == "not_enough_evidence"
    assert first(said((watchdog(0), *abort, "(raylet) A worker died or was killed"))) != "segfault_worker"


def test_a_rank_whose_last_data_a_broken_link_lost_took_no_other_path() -> None:
    lost = "gpu-1:81:90 [0] transport/net_ib.cc:295 NCCL WARN NET/IB : Got completion from peer 10.1.1.2<4> status=12"
    explanation = said((
        lost, watchdog(0, seq=512, op="BROADCAST"), status(0, 512, 512, 511),
        watchdog(1, seq=511, op="ALLREDUCE"), status(1, 511, 511, 510),
    ))  # fmt: skip
    assert first(explanation) == "ib_broken"


def test_a_guessed_device_is_no_cause_where_the_job_says_what_it_waits_for() -> None:
    guess = (
        "[rank0]:[W502 10:00:01.1 ProcessGroupNCCL.cpp:4561]  using GPU 0 as device used by this process is currently "
        "unknown."
    )
    assert first(said((guess,))) == "device_mapping_unknown"
    waits = "Server is not up yet. Retrying in 2.0 seconds..."
    assert first(said((guess, waits, waits))) == "unfinished"


def test_an_empty_log_of_a_rank_counts_as_a_rank_without_an_error(tmp_path: Path) -> None:
    for rank in range(4):
        lines = "" if rank == 1 else "\n".join(raised(rank, '/opt/app/train.py", line 44, in step', GLOO)) + "\n"
        (tmp_path / f"rank_{rank}.log").write_text(lines)
    explanation = explain_paths([str(tmp_path)])
    assert "rank 1" in explanation.summary
    assert "TORCH_NCCL" not in page(explanation)  # Gloo has no flight recorder


def test_a_hang_is_recognized_though_its_last_line_is_cut() -> None:
    lines = ("distributed init (rank 0, world 2): env://", "I0411 01:28:10.379357 140254645")
    assert first(said(lines)) == "hang_no_error"


def test_a_log_of_warnings_only_is_still_running_or_cut() -> None:
    assert first(said(("/opt/a.py:9: UserWarning: x is deprecated", "  warnings.warn("))) == "unfinished"


def test_a_channel_of_ray_that_timed_out_is_a_symptom_with_the_engines_advice() -> None:
    explanation = said(
        (HEADER, '  File "/opt/vllm/a.py", line 3, in f', "ray.exceptions.RayChannelTimeoutError: System error")
    )
    assert first(explanation) == "watchdog_timeout_straggler"
    assert "TORCH_NCCL" not in explanation.causes[0].remedy


@pytest.mark.parametrize(
    "error",
    [
        "EI0002: 2026-05-02-10:00:09.118 The wait execution of the Notify register times out. Reason: rank 3 is late",
        "EI0006: 2026-05-02-10:00:09.118 Getting socket times out. Reason: 1. The remote does not initiate a connect",
        "RuntimeError: EJ0001: Failed to initialize the HCCP process. Reason: The last training process is running",
        "RuntimeError: EE1001: The argument is invalid. Reason: rtSetDevice failed, error code 107020",
    ],
    ids=lambda error: error[:30].partition(":")[0],
)
def test_ascends_codes_are_its_runtimes_fault_and_the_advice_names_its_logs(error: str) -> None:
    explanation = said(("[rank3]: " + HEADER, '[rank3]:   File "train.py", line 9, in step', f"[rank3]: {error}"))
    assert first(explanation) == "accelerator_runtime_ascend"
    assert "plog" in explanation.causes[0].remedy
    assert "TORCH_NCCL" not in page(explanation)


def test_in_a_folder_of_logs_the_only_rank_without_an_error_is_the_one_that_was_late(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        lines = [] if rank == 2 else raised(rank, '/opt/app/train.py", line 44, in step', GLOO)
        (folder / "stderr.log").write_text("\n".join([f"[rank{rank}]: epoch 3 of 9", *lines]) + "\n")
    explanation = explain_paths([str(tmp_path)])
    assert "rank 2" in explanation.summary.lower()


def test_dumps_alone_are_counted_as_read_and_their_deciding_fact_is_on_the_page(tmp_path: Path) -> None:
    for rank, name in enumerate(["nccl:all_reduce", "nccl:all_gather"]):
        entries = [
            {"collective_seq_id": 7, "process_group": ("0", "default_pg"), "profiling_name": name, "state": "scheduled",
             "input_sizes": [[4]], "is_p2p": False, "frames": []}
        ]  # fmt: skip
        dump = {"version": "2.4", "entries": entries, "pg_config": {"0": {"name": "0"}}}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    shown = page(explain_paths([str(tmp_path)]))
    assert "Input: 0 logs" not in shown
    assert "all_gather" in shown


def test_too_few_gpus_for_the_engines_options_are_a_wrong_argument() -> None:
    error = "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group."
    assert first(said((HEADER, '  File "/opt/vllm/ray_utils.py", line 301, in init', error))) == (
        "framework_argument_error"
    )


def test_tracebacks_that_end_in_different_collectives_are_a_mismatch() -> None:
    source = '/opt/app/train.py", line 54, in step'
    calls = ("    dist.all_reduce(loss)", "    dist.broadcast(loss, 0)")
    lines = [line for rank in (0, 1) for line in raised(rank, f"{source}\n[rank{rank}]: {calls[rank]}", GLOO)]
    explanation = said(lines)
    assert first(explanation) == "collective_mismatch"
    assert "a barrier timed out waiting" not in page(explanation)


def test_the_page_of_a_python_error_names_the_line_of_the_programs_own_frame() -> None:
    shown = page(
        said((
            "[rank1]: " + HEADER,
            '[rank1]:   File "/opt/venv/lib/python3.12/site-packages/lightning/loops/fit.py", line 250, in advance',
            '[rank1]:   File "/opt/app/light.py", line 9, in training_step',
            '[rank1]:     caption = batch["caption"]',
            "[rank1]: KeyError: 'caption'",
        ))
    )  # fmt: skip
    assert "light.py:9" in shown or 'light.py", line 9' in shown
    assert "training_step" in shown


def test_the_line_that_decides_stands_before_the_symptom() -> None:
    saved = "[INFO|trainer.py:3801] 2026-05-02 10:00:16 >> Saving model checkpoint to /out/checkpoint-1200"
    weights = (
        "[INFO|modeling_utils.py:2980] 2026-05-02 10:00:19 >> Model weights saved in /out/checkpoint-1200/model.st"
    )
    explanation = said(("{'loss': 0.71, 'epoch': 0.4}", saved, weights, watchdog(1), watchdog(2)))
    assert first(explanation) == "checkpoint_save_timeout"
    assert "saved in" in quoted(explanation) or "Saving model" in quoted(explanation)
    assert sum("Watchdog caught" in quote.text for quote in explanation.causes[0].evidence) == 1


def test_different_calls_prove_nothing_while_a_rank_is_missing() -> None:
    calls = {0: "    dist.all_reduce(loss, group=rows)", 1: "    dist.barrier(columns)"}
    waiting = [
        line
        for rank, call in calls.items()
        for line in raised(rank, f'/opt/app/train.py", line 54, in step\n[rank{rank}]: {call}', GLOO)
    ]
    explanation = said(("WORLD_SIZE=3", *waiting))
    assert first(explanation) == "watchdog_timeout_straggler"
    assert "rank 2" in explanation.summary
    assert "all_reduce at train.py:54" in explanation.summary


@pytest.mark.parametrize(
    ("ranks", "size", "who"),
    [((1,), 4, "Only rank 1 of 4 "), ((0, 1), 2, "All 2 ranks "), ((0, 3), 8, "Ranks 0, 3 ")],
    ids=["one", "all", "some"],
)
def test_a_python_error_says_whether_all_ranks_show_it(ranks: tuple[int, ...], size: int, who: str) -> None:
    lines = [line for rank in ranks for line in raised(rank, '/opt/app/a.py", line 3, in f', "KeyError: 'x'")]
    explanation = said((f"WORLD_SIZE={size}", *lines))
    assert explanation.summary.startswith(who)
    assert "at a.py:3 (f)" in explanation.summary


def test_a_rank_that_the_launcher_ended_without_an_error_of_its_own_was_late() -> None:
    table = [*torchrun(1), "  rank      : 0 (local_rank: 0)", "  exitcode  : -15 (pid: 811)  (SIGTERM)"]
    waiting = raised(1, '/opt/app/train.py", line 28, in save\n[rank1]:     dist.barrier()', GLOO)
    explanation = said((*waiting, *table))
    assert (first(explanation), explanation.causes[0].confidence.value) == ("watchdog_timeout_straggler", "medium")
    assert "rank 0" in explanation.summary
    assert "barrier at train.py:28" in explanation.summary


def test_a_sigterm_from_outside_is_told_and_names_no_cause() -> None:
    error = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 81 got signal: 15"
    explanation = said((HEADER, '  File "/opt/venv/bin/torchrun", line 8, in <module>', error))
    assert first(explanation) == "not_enough_evidence"
    assert "got SIGTERM from outside" in page(explanation)


@pytest.mark.parametrize(
    "ended",
    [
        "W0511 07:50:00.113 1901853 torch/distributed/elastic/agent/server/api.py:725] Received 15 death signal, "
        "shutting down workers",
        "[2024-05-26 23:35:11] [ERROR] [launch.py:321:sigkill_handler] ['python', 'a.py'] exits with return code = -15",
        "[2026-08-02 00:17:43] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
    ],
)
def test_a_sigterm_from_outside_is_read_in_the_words_of_each_launcher(ended: str) -> None:
    explanation = said(("step 3 loss: 2.5", ended))
    assert first(explanation) == "not_enough_evidence"
    assert "got SIGTERM from outside (line 2)" in page(explanation)
    assert "got SIGTERM" not in page(said((*raised(1, '/opt/app/a.py", line 3, in f', "KeyError: 'x'"), ended)))


@pytest.mark.parametrize(
    "line",
    [
        "[2025-08-15 08:42:11,420] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, exiting",
        "Detected KeyboardInterrupt, attempting graceful shutdown ...",
    ],
)
def test_ctrl_c_is_read_in_the_words_of_deepspeed_and_lightning(line: str) -> None:
    assert first(said(("step 3 loss: 2.5", line))) == "scheduler_cancelled"
    assert first(said(("step 3 loss: 2.5", watchdog(0), line))) == "watchdog_timeout_straggler"


def test_an_interrupt_below_wide_markers_is_no_line_that_a_window_broke() -> None:
    marked = [f"    return f({'x' * 90})", " " * 11 + "^" * 92]
    frames = [line for i in range(3) for line in (f'  File "/opt/app/train.py", line {i}, in f', *marked)]
    assert first(said((HEADER, *frames, "KeyboardInterrupt"))) == "scheduler_cancelled"


def test_what_a_thread_of_wandb_raises_as_its_process_ends_is_no_cause() -> None:
    closed = (
        "2025-03-02 10:11:32,709 WARNING MsgRouterThr:3607 [router.py:message_loop():77] message_loop has been closed"
    )
    frame = '  File "/opt/wandb/sdk/lib/sock_client.py", line 270, in _read_packet_bytes'
    lost = (HEADER, frame, "wandb.sdk.lib.sock_client.SockClientClosedError")
    assert first(said(("step 3 loss: 2.5", closed, *lost))) == "not_enough_evidence"


def test_a_text_about_divisors_is_no_refused_option() -> None:
    kids = "train - INFO - 44 / 3 = 14 remainder 2, as 44 is not a multiple of 3."
    assert said(("step 3 loss: 2.5", kids, "Training finished.")).verdict is ExplainVerdict.HEALTHY
    assert first(said(("AssertionError: 30 is not divisible by 4",))) == "framework_argument_error"


def test_a_web_address_that_has_no_name_is_not_the_rendezvous_endpoint() -> None:
    failed = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
    web = (
        HEADER, '  File "/opt/urllib3/connection.py", line 187, in _new_conn',
        "urllib3.exceptions.NewConnectionError: <urllib3.connection.HTTPSConnection object at 0x>: Failed to establish "
        "a new connection: [Errno -3] Temporary failure in name resolution",
    )  # fmt: skip
    assert first(said((HEADER, '  File "/opt/socket.py", line 752, in getaddrinfo', failed))) == "rendezvous_failed"
    assert (
        first(said((HEADER, '  File "/opt/socket.py", line 752, in getaddrinfo', failed, *web))) != "rendezvous_failed"
    )


def test_no_data_between_nodes_is_not_said_to_be_direct_copies_between_gpus() -> None:
    joined = [
        f"node{n}:7{n}:7{n} [0] NCCL INFO Channel 00/0 : {n}[0] -> {1 - n}[0] [send] via NET/AWS Libfabric/0"
        for n in (0, 1)
    ]
    waited = (watchdog(0, seq=1), watchdog(1, seq=1))
    assert first(said(waited)) == "p2p_broken"
    assert first(said((*joined, *waited))) == "watchdog_timeout_straggler"


def test_a_number_of_completed_collectives_that_torch_never_wrote_makes_nobody_late() -> None:
    status = (
        "[rank{0}]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank {0}] Timeout at NCCL work: 1, last enqueued NCCL work: 1, "
    )
    lines = [
        f"{status.format(rank)}last completed NCCL work: {number}." for rank, number in ((0, 0), (1, 390495534952))
    ]
    assert "did not join" not in said((watchdog(0), watchdog(1), *lines)).summary


def test_an_endpoint_that_torchrun_refuses_is_an_argument() -> None:
    error = "ValueError: The port number of the rendezvous endpoint 'None:None' must be an integer between 0 and 65536."
    explanation = said((HEADER, '  File "/opt/torch/distributed/elastic/rendezvous/utils.py", line 95, in f', error))
    assert first(explanation) == "framework_argument_error"


def test_watchdogs_of_ranks_that_outlive_a_ctrl_c_follow_from_it() -> None:
    pressed = (HEADER, '  File "/opt/app/train.py", line 30, in f', "KeyboardInterrupt")
    explanation = said(("step 3 loss: 2.5", *pressed, watchdog(0), watchdog(1)))
    assert first(explanation) == "scheduler_cancelled"
    assert "train.py:30" in explanation.summary
    assert "watchdog_timeout_straggler" in {each.cause for each in explanation.consequences}


def test_ctrl_c_after_another_failure_is_not_the_cause() -> None:
    pressed = (HEADER, '  File "/opt/app/train.py", line 30, in f', "KeyboardInterrupt")
    assert first(said((watchdog(0), *pressed))) == "watchdog_timeout_straggler"
    assert "train.py:30" in said(pressed).summary


def test_a_loss_of_nan_is_a_note_and_no_cause() -> None:
    explanation = said(("step 3 loss: nan lr 1e-5", "Training finished."))
    assert explanation.verdict is ExplainVerdict.HEALTHY
    assert any("nan since line 1" in note for note in explanation.notes)
    assert not said(("step 3 loss: 0.2 nan_count 0",)).notes[1:]


def test_a_peer_of_another_machine_is_named_and_nobody_is_said_to_have_left_early() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.4.0.7]:41233"
    explanation = said(("WORLD_SIZE=2", *raised(0, '/opt/app/two.py", line 5, in <module>', lost), *torchrun(0)))
    assert "10.4.0.7" in explanation.summary
    assert "without an error" not in explanation.summary


def test_a_log_that_ends_in_a_data_sets_map_says_what_to_look_at_in_its_workers() -> None:
    explanation = said(
        ("Generating train split: 5000 examples", "Map (num_proc=32):  12%|#2  | 600/5000 [00:03<00:22]")
    )
    assert "num_proc=1" in page(explanation)


def test_an_article_is_no_log_and_the_page_says_so() -> None:
    article = (
        "<h1>How we trained a 13B model on 64 GPUs</h1>",
        "<p>In this post we look at the lessons of six weeks. Our first attempt was slow.</p>",
        "<p>Then a colleague told us to raise the timeout, and everything got better.</p>",
    )
    assert "not look like a log" in page(said(article))


REDUCTION = (
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error "
    "indicates that your module has parameters that were not used in producing loss."
)
HUB = (
    "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max "
    "retries exceeded with url: /acme/m (Caused by NewConnectionError: [Errno 101] Network is unreachable'))\"))"
)


@pytest.mark.parametrize(
    ("error", "advised"),
    [
        (REDUCTION, "find_unused_parameters"),
        ("OSError: [Errno 116] Stale file handle: '/mnt/models/a.safetensors'", "mount"),
        (HUB, "HF_HUB_OFFLINE"),
        ("KeyboardInterrupt", "Ctrl-C"),
    ],
    ids=["reduction", "storage", "hub", "interrupt"],
)
def test_common_ends_are_named_with_the_advice_that_cures_them(error: str, advised: str) -> None:
    explanation = said((HEADER, '  File "/opt/app/train.py", line 30, in <module>', error))
    assert explanation.verdict is ExplainVerdict.CAUSE_NAMED
    assert advised in page(explanation)


def test_a_rank_that_left_early_without_an_error_is_named_and_no_loopback_address_is() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:41233"
    frame = '/opt/app/two.py", line 5, in <module>'
    explanation = said(("WORLD_SIZE=2", *raised(0, frame, lost), *torchrun(0)))
    assert explanation.verdict is ExplainVerdict.CAUSE_NAMED
    assert "rank 1" in explanation.summary.lower()
    assert "127.0.0.1" not in explanation.summary


def test_an_engine_that_stands_in_ncclcomminitrank_with_a_bridge_as_its_interface_chose_the_wrong_one() -> None:
    explanation = said((
        "[2026-05-02 10:02:25 TP0] Init torch distributed begin.",
        "[2026-05-02 10:02:41 TP0] sglang is using nccl==2.28.9",
        "gpu-a:812:812 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>",
        "gpu-b:907:907 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>",
        "[2026-05-02 10:12:41 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        'Thread 812 (idle): "MainThread"',
        "    ncclCommInitRank (sglang/srt/distributed/device_communicators/pynccl_wrapper.py:420)",
        "[2026-05-02 10:12:46] Rank 0 scheduler died (exit code: -9).",
    ))  # fmt: skip
    assert first(explanation) == "wrong_socket_interface"


def test_a_placement_group_that_ray_cannot_fill_is_a_lack_of_gpus_in_ray() -> None:
    engine = "(EngineCore pid=905) "
    explanation = said((
        f"{engine}WARNING 05-02 11:00:12 [ray_utils.py:381] Tensor parallel size (16) exceeds available GPUs (8).",
        f"{engine}INFO 05-02 11:10:22 [ray_utils.py:218] Waiting for creating a placement group for 610 seconds.",
        engine + HEADER,
        f'{engine}  File "/opt/vllm/ray_utils.py", line 233, in _wait_until_pg_ready',
        f"{engine}ValueError: Cannot provide a placement group of placement_group_specs=[...] within 1800 seconds.",
    ))  # fmt: skip
    assert first(explanation) not in ("not_nccl", "not_enough_evidence")
    assert "ray status" in explanation.causes[0].remedy
    assert "one process" not in explanation.causes[0].remedy


def test_a_transfer_that_fell_back_to_tcp_is_shown_and_torchs_variables_are_not_advised() -> None:
    explanation = said((
        "[1763467213.92] [decode-0:301 :1] ucp_worker.c:1912 UCX INFO ucp_context_0 inter-node cfg#2 rma(tcp/eth0)",
        "(EngineCore_DP0 pid=301) ERROR 05-02 12:03:17 [nixl_connector.py:1711] NIXL transfer setup/initiation failed",
        "(EngineCore_DP0 pid=301) nixl._bindings.nixlRemoteDisconnectError: NIXL_ERR_REMOTE_DISCONNECT",
        "(EngineCore_DP0 pid=301) ERROR 05-02 12:03:18 [core.py:790] EngineCore encountered a fatal error.",
    ))  # fmt: skip
    shown = page(explanation)
    assert "rma(tcp/eth0)" in shown
    assert "TORCH_NCCL" not in shown


@pytest.mark.parametrize(
    ("lines", "step"),
    [
        (("RuntimeError: The server socket has failed to bind to [::]:29417 (errno: 98 - Address already in use).",),
         "ss -ltnp 'sport = :29417' on"),
        (("torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect "
          "to (10.4.0.7, 29417).",), "nc -zv 10.4.0.7 29417 "),
        (("gpu-1:7:7 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.4.0.7<40233> failed : No route "
          "to host",), "nc -zv 10.4.0.7 40233 "),
        (("gpu-a:8:8 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>",
          "gpu-b:9:9 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>"), "export NCCL_SOCKET_IFNAME=^docker0,lo "),
        (("RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.4.0.7]:41233",),
         "Run `ssh 10.4.0.7 sudo dmesg -T"),
    ],
    ids=["port", "endpoint", "peer", "interface", "host"],
)  # fmt: skip
def test_the_first_step_is_a_command_with_the_logs_own_values(lines: tuple[str, ...], step: str) -> None:
    assert said(lines).causes[0].remedy.startswith(step)


def test_an_xid_names_the_gpu_to_look_at() -> None:
    assert "nvidia-smi -i 0000:5d:00 -q" in said(("NVRM: Xid (PCI:0000:5d:00): 79, pid=4711",)).causes[0].remedy
