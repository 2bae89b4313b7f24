"""What a verbs library or an adapter answers decides headline and steps: lines as NCCL prints them."""

from __future__ import annotations

import pytest

from preflight.model.explanation import ExplainVerdict
from tests.explain.logs import cause_of_lines, explain_bytes

AT = "gpu-1:81:90 [0] "
WIRE = "NCCL WARN NET/IB : Got completion from peer 10.1.2.3<41270> with "
ANSWERS = {
    f"{AT}misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error No such device": (
        "network interface does not exist there", "show_gids",
    ),
    f"{AT}misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with 19 No such device, on dev mlx5_0:1": (
        "network interface does not exist there", "show_gids",
    ),
    f"{AT}misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable": (
        "no route to a peer's address", "ip route get",
    ),
    "Failed to modify QP to RTR: Connection timed out": ("no answer from a peer's address", "ibstat"),
    f"{AT}misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory": (
        "limit of locked memory", "ulimit -l",
    ),
    f"{AT}ibvwrap.c:130 NCCL WARN Call to ibv_create_qp failed": ("limit of locked memory", "ulimit -l"),
    f"{AT}misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported": (
        "DMA-BUF", "NCCL_DMABUF_ENABLE=0",
    ),
    f"{AT}misc/ibvwrap.cc:288 NCCL WARN Call to ibv_modify_qp failed with error Invalid argument": (
        "refused a call", "show_gids",
    ),
    f"{AT}{WIRE}error 4, opcode 32564, len 32564, vendor err 81 (Send)": ("GPUDirect RDMA", "NCCL_NET_GDR_LEVEL=LOC"),
    f"{AT}{WIRE}status=9 opcode=0 len=0 vendor err 138": ("disagree about the memory", "versions"),
    f"{AT}NCCL WARN NET/IB : mlx5_0:1 Got async event : local access violation work queue error": (
        "disagree about the memory", "versions",
    ),
    f"{AT}{WIRE}status=12 opcode=0 len=0 vendor err 129": (
        "did not acknowledge data. The path", "peer's process had ended",
    ),
    f"{AT}{WIRE}status=5 opcode=0 len=0 vendor err 249 (Recv) hca mlx5_0": ("after an earlier error", "not 5"),
    f"{AT}NCCL WARN NET/IB : mlx5_0:1 Got async event : port error": ("port of a rank on gpu-1 went down", "ibstat"),
    f"{AT}NCCL WARN NET/IB : mlx5_0:1 Got async event : local catastrophic error": (
        "adapter of a rank on gpu-1 failed", "mlx5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", ANSWERS)
def test_the_answer_decides_what_is_said_and_done(line: str) -> None:
    told, first_step = ANSWERS[line]
    cause = explain_bytes(line.encode()).causes[0]
    assert cause.cause == "ib_broken" and told in cause.verdict and first_step in cause.remedy.split("\n")[0], cause


def test_of_several_lines_the_one_that_names_more_decides() -> None:
    lines = ["mlx5: gpu5: got completion with error:", f"{AT}{WIRE}error 4, opcode 1, len 0, vendor err 81"]
    assert "GPUDirect RDMA" in explain_bytes("\n".join(lines).encode()).causes[0].verdict


def test_a_process_that_had_died_before_leaves_no_adapter_at_fault() -> None:
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error."
    line = f"{AT}{WIRE}status=12 opcode=0 len=0 vendor err 129"
    assert cause_of_lines([died, line]) == "remote_peer_died"
    assert cause_of_lines([line, died]) == "ib_broken"


def test_a_bug_of_one_kind_of_machine_is_advised_only_where_the_log_tells_of_it() -> None:
    line = f"{AT}misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
    assert "boot the kernel" not in explain_bytes(line.encode()).causes[0].remedy
    spark = explain_bytes(f"GPU 0: NVIDIA GB10\n{line}\n".encode()).causes[0]
    assert spark.remedy.startswith("boot the kernel")


ENGINE = {
    "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'": "--disable-custom-all-reduce",
    "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization": (
        "31.44 of 47.38 GiB were free"
    ),
    "h:35:89 [5] fi_getinfo_():1392<warn> fi_getinfo: provider efa output empty list": "fi_info -p efa",
    "h:35:89 [5] ofi_process_cq:1039 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 20. Error: unknown": (
        "security group"
    ),
}


@pytest.mark.parametrize("line", ENGINE)
def test_the_first_step_is_the_one_that_leads_to_the_fix(line: str) -> None:
    assert ENGINE[line] in explain_bytes(line.encode()).causes[0].remedy.split("\n")[0]


def test_a_host_whose_name_leads_nowhere_is_told_as_such() -> None:
    line = (
        "[rank9]:[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the "
        "loopback address as fallback."
    )
    cause = explain_bytes(line.encode()).causes[0]
    assert cause.cause == "wrong_socket_interface" and "The host name" in cause.verdict
    assert "getent hosts" in cause.remedy.split("\n")[0]


def test_an_exit_code_of_sigkill_is_read_as_sglang_writes_it() -> None:
    lines = ["[12-16 14:27:08] Rank 0 scheduler is dead. Please check if there are relevant logs.", "Exit code: -9"]
    assert cause_of_lines(lines) == "host_oom_killed"


NOT_MISTAKEN = {  # numbers in addresses, codes of vendors, other errors of the same calls
    f"{AT}{WIRE}status=12 opcode=0 len=0 vendor err 81": "did not acknowledge data. The path",
    f"{AT}{WIRE}status=13 opcode=0 len=0 vendor err 135": "did not acknowledge data. The path",
    f"{AT}NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1, local GID fe80::110": (
        "refused a call"
    ),
    "Failed to modify QP 19 to RTR: Connection timed out": "no answer from a peer's address",
    "non-zero status: 110 ibv_modify_qp failed": "no answer from a peer's address",
    f"{AT}NCCL WARN Call to ibv_create_cq failed with error Invalid argument": "refused a call",
    f"{AT}NCCL WARN Call to ibv_open_device failed with error No such device": "could not open an InfiniBand device",
    f"{AT}NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address": "GPUDirect RDMA",
    "[99.1] mlx5_core 0000:3b:00.0 ens1: Link down": "port of a rank went down",
}


@pytest.mark.parametrize("line", NOT_MISTAKEN)
def test_what_only_looks_like_another_answer_is_not_taken_for_it(line: str) -> None:
    assert NOT_MISTAKEN[line] in explain_bytes(line.encode()).causes[0].verdict


def test_addresses_that_changed_before_a_refused_connection_come_first() -> None:
    moved = f"{AT}NCCL WARN NET/IB : mlx5_0:1 Got async event : GID table change"
    line = f"{AT}NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1"
    assert "ip monitor address" in explain_bytes(f"{moved}\n{line}\n".encode()).causes[0].remedy


def test_a_request_that_a_running_server_refuses_ends_nothing() -> None:
    lines = [
        "(APIServer pid=1) ERROR 05-19 14:02:03 [serving_chat.py:212] ValueError: This model's maximum context is",
        "(APIServer pid=1) INFO 05-19 14:02:13 [loggers.py:123] Engine 000: Avg prompt throughput: 10.3 tokens/s",
    ]
    assert explain_bytes("\n".join(lines).encode()).causes == ()


def test_a_warning_hides_only_what_it_warns_of() -> None:
    line = (
        f"To silence this warning, specify x. {AT}NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"
    )
    assert cause_of_lines([line]) == "ib_broken"


def test_an_oom_kill_long_after_a_slow_start_is_told() -> None:
    slow = "Timed out waiting for worker 3 to register, retrying"
    steps = [f"step {step} loss 2.{step}" for step in range(40)]
    assert cause_of_lines([slow, *steps, "exitcode : -9"]) == "host_oom_killed"


PLUGIN = {
    "h:35:89 [5] fi_getinfo_():1392<warn> fi_getinfo: provider efa output empty list": "no EFA device",
    "h:35:89 [5] ofi_process_cq NCCL WARN NET/OFI Request 0x7f completed with error. RC: 20.": "ended with an error",
    "h:81:90 [0] NCCL WARN Failed to initialize any NET plugin": "no network that it may use",
    "WARN: Function: create_nccl_ofi_component Line: 459: NET/OFI Couldn't open AV. RC: -22": "an address vector",
    "h:82:25 [0] platform_config:626 NCCL WARN NET/OFI GDR disabled on GDR-supported instance": "could not set it up",
}


@pytest.mark.parametrize("line", PLUGIN)
def test_a_plugin_s_own_words_decide_the_headline(line: str) -> None:
    cause = explain_bytes(line.encode()).causes[0]
    assert cause.cause == "nccl_plugin_problem" and PLUGIN[line] in cause.verdict


def test_an_efa_peer_whose_address_is_not_valid_has_ended_and_no_version_is_blamed() -> None:
    line = "libfabric:451707:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address"
    cause = explain_bytes(line.encode()).causes[0]
    assert cause.cause == "efa_or_libfabric" and "an address there is not valid" in cause.verdict


LOST = "h:35:59 [0] transport/net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 12, opcode 1, vendor err 129"
ILLEGAL = "h:35:35 [1] init.cu:194 NCCL WARN Cuda failure 'an illegal memory access was encountered'"


@pytest.mark.parametrize(
    ("lines", "cause"), [((LOST, ILLEGAL), "ib_broken"), ((ILLEGAL, LOST), "cuda_illegal_address")]
)
def test_a_kernel_that_fails_after_a_transfer_was_given_up_is_not_the_cause(lines: tuple[str, ...], cause: str) -> None:
    assert explain_bytes("\n".join(lines).encode()).causes[0].cause == cause


@pytest.mark.parametrize(
    "names", ["(Worker_DP0_EP0 pid=282)", "(EngineCore_DP0 pid=1305) (RayWorkerWrapper pid=344, ip=10.2.30.130)"]
)
def test_an_error_that_vllm_logs_without_its_traceback_is_read(names: str) -> None:
    logged = f"{names} ERROR 10-16 17:22:56 [nixl_connector.py:815] "
    line = f"{logged}RuntimeError: Remote NIXL agent engine ID mismatch."
    cause = explain_bytes(line.encode()).causes[0]
    assert "another engine" in cause.verdict and "VLLM_NIXL_SIDE_CHANNEL_HOST" in cause.remedy.split("\n")[0]


def test_an_engine_that_waited_for_a_worker_waited_in_no_collective_that_the_log_shows() -> None:
    line = "ERROR 09-06 04:14:11 [core.py:640] TimeoutError: RPC call to execute_model timed out."
    assert explain_bytes(line.encode()).causes[0].verdict.startswith("The engine timed out waiting for a worker")


def test_an_engine_whose_log_has_no_error_is_starting() -> None:
    lines = (
        "(EngineCore_DP0 pid=71) INFO 05-19 14:01:02 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config",
        "(Worker_TP0 pid=74) INFO 05-19 14:02:42 [backends.py:393] Compiling a graph for compile range (1, 8192)",
    )
    assert explain_bytes("\n".join(lines).encode()).verdict is ExplainVerdict.UNFINISHED


ONE_NODE = (
    "[2026-11-18 10:02:11] server_args=ServerArgs(model_path='/m', tp_size=16, nnodes={}, node_rank=0)",
    "gpu-a:812:812 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>",
    "[2026-11-18 10:12:41 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
)


@pytest.mark.parametrize(("nnodes", "cause"), [(2, "wrong_socket_interface"), (1, "watchdog_timeout_straggler")])
def test_one_node_s_log_shows_a_bridge_as_the_cause_if_it_names_several_nodes(nnodes: int, cause: str) -> None:
    lines = "\n".join(ONE_NODE).format(nnodes)
    assert explain_bytes(lines.encode()).causes[0].cause == cause


GONE = "ip: 10.0.0.7 The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
LATE = (
    "[rank9]:[E402 07:10:44.967375581 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=8, OpType=BROADCAST, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600089 milliseconds"
)


@pytest.mark.parametrize(
    ("lines", "cause"), [((GONE, LATE), "remote_peer_died"), ((LATE, GONE), "watchdog_timeout_straggler")]
)
def test_who_waits_for_a_worker_that_was_gone_before_waits_for_no_late_rank(lines: tuple[str, ...], cause: str) -> None:
    assert explain_bytes("\n".join(lines).encode()).causes[0].cause == cause


def test_a_remote_error_that_may_be_the_network_s_is_not_called_a_death() -> None:
    line = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    reset = "socketProgressOpt: Call to recv from 172.20.4.18<40759> failed : Connection reset by peer"
    assert "or the network to it failed" in explain_bytes(f"{line}\n{reset}".encode()).causes[0].verdict
