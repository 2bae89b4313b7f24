"""The pages of `explain`, exact where they are kept, and the env lines that a cause justifies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.model.explanation import Confidence
from preflight.show.explain import FOUND, explain_page, render_explanation_env
from preflight.show.text import Detail, Style, width_of
from tests.explain.logs import SEEDS, explain_bytes, status, watchdog
from tests.kept import compare

GOLDEN = Path(__file__).parent.parent / "golden" / "explain"
COMPOSED: dict[str, tuple[str, ...]] = {
    "straggler_named": tuple(
        line for r in (0, 1, 2) for line in (watchdog(r, 77) * (r != 1), status(r, 77, 79 - 3 * (r == 1), 76))
    ),
    "mismatch": (watchdog(0, 12, "ALLREDUCE"), watchdog(1, 12, "ALLGATHER"), status(0, 12, 12, 11)),
    "host_memory": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4411.0. Some of the step tasks have been OOM Killed.",
        "srun: error: node-7: task 3: Out Of Memory",
        watchdog(0),
    ),
    "peer_died": (
        "node-1:4411:4420 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote "
        "peer node-2<37128>",
    ),
    "shared_memory": (
        "pod-0:71:90 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-79f392 to 9637892 bytes, "
        "error: No space left on device (28)",
    ),
    "healthy": ("# Avg bus bandwidth    : 412.7", "# Collective test concluded: all_reduce_perf"),
    "nothing_known": ("Starting job on node-7", "module load cuda"),
}


def _log(name: str) -> bytes:
    if name in COMPOSED:
        return "\n".join(COMPOSED[name]).encode() + b"\n"
    return (SEEDS / f"{name}.log").read_bytes()


NAMES = sorted([*COMPOSED, *(path.stem for path in SEEDS.glob("*.log"))])


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_the_one_that_is_kept(name: str) -> None:
    compare(GOLDEN / f"{name}.txt", explain_page(explain_bytes(_log(name))).shown(Detail.ALL, Style(width=80)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_of_any_page_is_wider_than_the_terminal(name: str, width: int) -> None:
    page = explain_page(explain_bytes(_log(name))).shown(Detail.ALL, Style(width=width))
    assert max(width_of(line) for line in page.splitlines()) <= width


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_nothing_of_a_log_reaches_the_terminal_unescaped(text: str) -> None:
    page = explain_page(explain_bytes(f"CUDA out of memory {text}".encode("utf-8", "surrogatepass"), "\x1b[2J")).shown(
        Detail.ALL, Style()
    )
    assert all(char.isprintable() for char in page.replace("\n", ""))


def test_settings_are_written_under_a_head_that_says_untried() -> None:
    text = render_explanation_env(explain_bytes(_log("shared_memory")))
    assert "export NCCL_SHM_DISABLE='1'" in text
    assert text.splitlines()[0] == "# untried: `preflight check` tries them"


def test_a_symptom_alone_sets_nothing() -> None:
    explanation = explain_bytes(_log("5_llama_factory_device_mapping"))
    assert explanation.causes[0].confidence is Confidence.LOW
    text = render_explanation_env(explanation)
    assert [line for line in text.splitlines() if not line.startswith("#")] == []
    assert "These variables may help: NCCL_IB_DISABLE, NCCL_P2P_DISABLE" in text


@pytest.mark.parametrize(("confidence", "head"), FOUND.items())
def test_the_page_begins_with_how_sure_it_is(confidence: Confidence, head: str) -> None:
    explanation = explain_bytes(_log("1_qwen_vl_oom_behind_timeout"))
    causes = (replace(explanation.causes[0], confidence=confidence), *explanation.causes[1:])
    assert explain_page(replace(explanation, causes=causes)).shown(Detail.ALL, Style()).splitlines()[0] == head


def test_a_cause_that_no_variable_cures_writes_comments_only() -> None:
    text = render_explanation_env(explain_bytes(_log("1_qwen_vl_oom_behind_timeout")))
    assert [line for line in text.splitlines() if not line.startswith("#")] == []
