"""A log to which several runs were appended: only the last run is explained, and nothing of one run is lost."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.explain import last_run
from preflight.explain.explain_logs import Log, explain
from preflight.model.explanation import Confidence, ExplainVerdict
from tests.explain.logs import explain_bytes

OPENING = """\
{at}:01,100 train INFO config: configs/base.yaml
{at}:01,200 train INFO backbone: resnet50, depth 50
{at}:01,300 train INFO optimizer: adamw, lr 0.001
{at}:01,400 train INFO process {pid} of rank {rank} starts
{at}:02,500 train INFO loading the data set from /data/train
"""
OOM = """\
{at}:30,100 train INFO step 10 loss 2.31
Traceback (most recent call last):
  File "train.py", line 40, in <module>
    main()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 23.69 GiB
"""
FULL_DISK = """\
{at}:30,100 train INFO step 10 loss 2.31
Traceback (most recent call last):
  File "train.py", line 71, in <module>
    save(model)
OSError: [Errno 28] No space left on device: '/scratch/step_10.pt'
"""


def _run(at: str, end: str, rank: int = 0, pid: int = 41234) -> str:
    return (OPENING + end).format(at=at, rank=rank, pid=pid)


def _without_stamps(text: str) -> str:
    return re.sub(r"^2026-03-01 \S+ ", "", text, flags=re.MULTILINE)


def _lines_left_out(text: str, *, is_of_one_rank: bool = False) -> int:
    chunks, earlier = last_run.last_run([text.encode()], is_of_one_rank=is_of_one_rank)
    assert b"".join(chunks) == text.encode()[earlier.size_bytes :]
    return earlier.lines


FIRST, SECOND = _run("2026-03-01 10:00", OOM), _run("2026-03-01 10:20", FULL_DISK, pid=52345)


def test_the_last_of_two_runs_is_explained_with_its_own_line_numbers() -> None:
    explanation = explain_bytes((FIRST + SECOND).encode(), "train.log")
    assert [cause.cause for cause in explanation.causes][:1] == ["disk_full"]
    assert explanation.causes[0].evidence[0].line == (FIRST + SECOND).count("\n")
    assert explanation.sources[0].lines == (FIRST + SECOND).count("\n")
    assert explanation.sources[0].size_bytes == len(FIRST + SECOND)
    assert explanation.notes[0] == (
        "train.log has several runs. Only the last run, from line 11, is explained. To explain the run before it: "
        "head -n 10 FILE | preflight explain -"
    )


def test_of_several_logs_one_is_named() -> None:
    logs = [Log(f"rank_{rank}.log", [(FIRST + SECOND).encode()]) for rank in range(2)]
    assert (
        explain(logs)
        .notes[0]
        .startswith("2 logs have several runs. Only the last run, from line 11 of rank_0.log, is explained.")
    )


def test_a_run_that_works_again_is_not_blamed_for_the_one_before() -> None:
    works = _run("2026-03-01 10:20", "".join(f"{{at}}:{s},100 train INFO step {s} loss 2.1\n" for s in range(10, 16)))
    assert explain_bytes((FIRST + works).encode()).verdict is ExplainVerdict.UNFINISHED


@pytest.mark.parametrize("runs", [1, 2, 5, 300])
def test_only_the_last_of_many_runs_is_left(runs: int) -> None:
    text = "".join(_run(f"2026-03-01 {i // 60:02}:{i % 60:02}", OOM) for i in range(0, runs * 2, 2)[-runs:])
    assert _lines_left_out(text) == (runs - 1) * FIRST.count("\n")


def test_ranks_whose_output_comes_one_after_the_other_are_one_run() -> None:
    """A program's output to a file stays in its buffer, and comes as the rank ends."""
    ranks = [_run("2026-03-01 10:00", OOM, rank=rank, pid=41234 + rank) for rank in range(4)]
    assert _lines_left_out("".join(ranks)) == 0
    alike = [_run("2026-03-01 10:00", OOM, pid=41234 + rank) for rank in range(4)]
    assert _lines_left_out("".join(alike)) == 0
    assert _lines_left_out(FIRST + "".join(alike).replace(" 10:00", " 11:00")) == FIRST.count("\n")


def test_ranks_without_time_stamps_may_be_one_run() -> None:
    plain = _without_stamps(FIRST)
    assert _lines_left_out(plain + plain) == 0
    assert _lines_left_out(plain + plain, is_of_one_rank=True) == plain.count("\n")
    assert _lines_left_out(f"nohup: ignoring input\n{plain}" * 2) == plain.count("\n") + 1


def _long(at: str, end: str) -> str:
    """A run of 110 lines, of which a failure or more steps are the end."""
    return _run(at, "".join(f"{{at}}:05,100 train INFO reading shard {shard}\n" for shard in range(100)) + end)


def test_a_cause_before_lines_that_may_be_another_run_is_not_proved() -> None:
    """Without time stamps, the second part may be another rank: nothing is cut, but it may also be the last run."""
    plain = _without_stamps(_long("2026-03-01 10:00", OOM) + _long("2026-03-01 10:20", ""))
    cause = explain_bytes(plain.encode(), "train.log").causes[0]
    assert (cause.cause, cause.confidence) == ("cuda_oom_masked", Confidence.MEDIUM)
    assert "another run may begin after these lines" in cause.because
    assert cause.remedy.startswith(
        "The first lines of train.log are printed again at line 111. If another run begins there, explain only the "
        "lines from 111 on (tail -n +111)."
    )


@pytest.mark.parametrize(
    "log",
    [
        _long("2026-03-01 10:00", OOM) + _long("2026-03-01 09:59", ""),  # a second rank, whose output was buffered
        _long("2026-03-01 10:00", OOM) + _long("2026-03-01 10:00", "").replace("10:00:", "10:00:3"),  # and a late one
        _without_stamps(_long("2026-03-01 10:00", OOM) + _run("2026-03-01 10:20", "")),  # just the first lines
        _without_stamps(FIRST + _long("2026-03-01 10:20", "")),  # a short run, as of a rank that failed at the start
        _without_stamps(
            _long("2026-03-01 10:00", OOM + "Restarting worker group\n") + _long("2026-03-01 10:20", "")
        ),
        _without_stamps(
            _long("2026-03-01 10:00", "NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\n" + OOM)
            + _long("2026-03-01 10:20", "")
        ),
    ],
)  # fmt: skip
def test_a_cause_stays_proved_if_nothing_suggests_another_run(log: str) -> None:
    assert explain_bytes(log.encode(), "train.log").causes[0].confidence is Confidence.HIGH


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("log/workerlog.3", "disk_full"),
        ("rank_3.log", "disk_full"),
        ("job-worker-3.log", "cuda_oom_masked"),
        ("lora_rank16.log", "cuda_oom_masked"),
    ],
)
def test_the_name_tells_whether_a_log_is_of_one_process(name: str, cause: str) -> None:
    """The log of a pod has all ranks of the pod."""
    explanation = explain_bytes(_without_stamps(FIRST + SECOND).encode(), name)
    assert explanation.causes[0].cause == cause


@pytest.mark.parametrize(
    "later",
    [
        "All done\n",
        "Traceback (most recent call last):\nDistNetworkError: The client socket has timed out after 60000ms\n",
    ],
    ids=["a stage of the same script", "a node that starts late"],
)
def test_what_prints_the_opening_again_and_does_no_work_is_no_run(later: str) -> None:
    """A container's banner is printed before each stage of a script, and by each node."""
    gave_up = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    text = FIRST + gave_up + _run("2026-03-01 10:20", later)
    assert _lines_left_out(text) == 0
    assert explain_bytes(text.encode()).causes[0].cause == "cuda_oom_masked"


def test_what_a_rank_left_in_its_buffer_is_no_run() -> None:
    """The opening is in the buffer of standard output, and comes after the traceback on standard error."""
    raised = OOM.partition("\n")[2]
    opening, again = _run("2026-03-01 10:00", ""), _run("2026-03-01 10:20", "")
    assert _lines_left_out(f"{opening}{raised}{again}", is_of_one_rank=True) == 0


def test_a_healthy_last_run_says_nothing_of_the_ones_before() -> None:
    done = _run("2026-03-01 10:20", "{at}:30,100 train INFO step 10 loss 2.31\nTraining completed.\n")
    explanation = explain_bytes((FIRST + done).encode(), "train.log")
    assert explanation.summary == "Nothing in the last run failed; the job reached its end."
    assert explanation.notes[0].startswith("train.log has several runs.")


def test_a_run_that_did_not_end_goes_on() -> None:
    """An opening that is repeated by a program that works on, as at each evaluation, is no new run."""
    goes_on = _run("2026-03-01 10:00", "{at}:30,100 train INFO step 10 loss 2.31\n")
    assert _lines_left_out(goes_on + SECOND) == 0


def test_other_settings_are_other_forms() -> None:
    """Short numbers tell one rank, epoch or configuration from another."""
    assert _lines_left_out(FIRST + SECOND.replace("resnet50, depth 50", "resnet18, depth 18")) == FIRST.count("\n")
    other = SECOND.replace("50, depth 50", "18, depth 18").replace("0.001", "0.01").replace("base", "large")
    assert _lines_left_out(FIRST + other) == 0


def test_a_log_over_the_limit_is_read_whole() -> None:
    step = "2026-03-01 10:00:31,100 train INFO step 11 loss 2.31\n"
    for size, left_out in ((last_run.LIMIT // 2, True), (last_run.LIMIT, False)):
        text = FIRST + SECOND + step.replace("10:00", "10:21") * (size // len(step))
        assert bool(_lines_left_out(text)) is left_out


@pytest.mark.parametrize("line", ["", "a", "step 1 of the loading\n", "nohup: ignoring input\n", "\n" * 9, "ab\r" * 5])
def test_a_flood_costs_little(line: str) -> None:
    text = (FIRST + line * (8_000_000 // max(1, len(line))) + SECOND).encode()
    began = time.process_time()
    last_run.last_run([text], is_of_one_rank=False)
    assert time.process_time() - began < 5


PARTS = st.sampled_from((FIRST, SECOND, OPENING, OOM, "\n", "\r", "x", "nohup: ignoring input\n", "\0", "é", "2026-"))


@given(text=st.lists(PARTS, max_size=12).map("".join) | st.text(max_size=200), is_of_one_rank=st.booleans())
def test_what_is_left_is_the_end_of_the_log_from_a_line_on(text: str, *, is_of_one_rank: bool) -> None:
    data = text.encode("utf-8", "replace")
    chunks, earlier = last_run.last_run([data], is_of_one_rank=is_of_one_rank)
    assert b"".join(chunks) == data[earlier.size_bytes :]
    assert earlier.lines == data.count(b"\n", 0, earlier.size_bytes)
    assert not earlier.size_bytes or data[earlier.size_bytes - 1 : earlier.size_bytes] == b"\n"
    assert not earlier.again or earlier.lines + 1 < earlier.again <= data.count(b"\n") + 1
    explain_bytes(data)


NVIDIA_SMI = """\
{date}
| NVIDIA-SMI 570.158.01             Driver Version: 570.158.01     CUDA Version: 12.8     |
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|   0  NVIDIA H800                    On  |   00000000:1B:00.0 Off |                    0 |
| N/A   {temperature}C    P0             {power}W /  700W |       0MiB /  81559MiB |      {load}%      Default |
"""


def test_what_nvidia_smi_measures_at_the_start_is_no_difference_between_runs() -> None:
    first = NVIDIA_SMI.format(date="Sat Dec 20 18:48:39 2025", temperature=23, power=65, load=0)
    second = NVIDIA_SMI.format(date="Sun Dec 21 07:03:11 2025", temperature=31, power=112, load=7)
    body = OOM.format(at="2025-12-20 18:50")
    later = FULL_DISK.format(at="2025-12-21 07:05")
    assert _lines_left_out(first + body + second + later) == (first + body).count("\n") + 1  # the line of `date`


def test_time_stamps_of_glog_with_a_year_tell_runs_apart() -> None:
    run = "".join(f"I{{day}} 10:0{i}:00.1 4711 train.cc:{i}] reads part number {i} of the plan\n" for i in range(5))
    death = "F{day} 10:06:00.1 4711 train.cc:9] Check failed: a == b\n"
    step = "I{day} 10:07:00.1 4711 train.cc:9] step 10 loss 2.31\n"
    first, second = (run + death).format(day=20260225), (run + step + death).format(day=20260226)
    assert _lines_left_out(first + second) == first.count("\n")
