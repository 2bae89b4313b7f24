"""The lines that no healthy run prints are quoted where no cause is proved; they name none and change no verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.explain.unusual_lines import (
    ALL_SCORED,
    SCORED,
    SHOWN,
    UnusualLines,
    background,
    digest,
    form_of,
    packed,
    unpacked,
    words_of,
)
from preflight.model.explanation import Confidence, ExplainVerdict, Explanation
from preflight.show.explain import explain_page
from preflight.show.text import Detail, Style
from tests.explain.logs import corpus, explain_bytes, watchdog

STEPS = [f"step {i} | loss 2.{i} | lr 1e-5" for i in range(40)]
DECISIVE = (
    "F20260502 11:10:33.595355   331 rdma_util.h:92] Check failed: queryVersion(device)",
    "(Worker pid=71) allocator.cc:118: arena exhausted while mapping segment 7, giving the device up",
    "[rank3]: plugin: cannot bind the doorbell of engine 4",
    "E0502 11:10:33.595355 331 agent.cpp:77] prepare: no usable backend found for the transfer",
)
LOST = "[rank1]: RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:41233"


def said(*lines: str) -> Explanation:
    return explain_bytes("\n".join([*STEPS, *lines]).encode() + b"\n")


def screen(explanation: Explanation) -> str:
    return " ".join(explain_page(explanation).shown(Detail.SCREEN, Style(120)).split())


@pytest.mark.parametrize("line", DECISIVE)
def test_the_line_is_on_the_first_screen_where_no_cause_is_named(line: str) -> None:
    explanation = said(line, "Aborted (core dumped)")
    assert explanation.verdict is ExplainVerdict.NOT_ENOUGH_EVIDENCE
    assert explanation.unusual[0].text == line.strip()
    assert line.rpartition("] ")[2][:60] in screen(explanation)


@pytest.mark.parametrize("line", DECISIVE)
def test_it_is_quoted_beside_secondary_errors_and_symptoms(line: str) -> None:
    lost = said(line, LOST)
    assert (lost.causes[0].cause, lost.unusual[0].text) == ("remote_peer_died", line.strip())
    symptom = said(line, watchdog(0), watchdog(1))
    assert symptom.causes[0].confidence is Confidence.LOW
    assert line.strip() in [quote.text for quote in symptom.unusual]


def test_a_proved_cause_and_a_run_that_goes_on_quote_none() -> None:
    killed = said(DECISIVE[0], "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert (killed.causes[0].confidence, killed.unusual) == (Confidence.HIGH, ())
    assert said(DECISIVE[2], *STEPS[:20]).unusual == ()
    assert said(DECISIVE[2], "Training completed. Do not forget to share your model").unusual == ()


def test_lines_of_launchers_frames_and_healthy_runs_are_none() -> None:
    explanation = said(
        "train.py FAILED", "Root Cause (first observed failure):", '  File "/a/b.py", line 3, in f',
        "    raise RuntimeError('it cannot be')", "RAS client: Unable to open", "Aborted (core dumped)",
        "gpu-1:81:81 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so",
        "gpu-1:81:81 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v8 symbol.",
        "2024-06-06 18:04:49 - DEBUG - Cannot load internal arguments, skipping.",
        '[titan] 2026-05-11 07:40:08,888 - httpx - INFO - HTTP Request: HEAD https://host "HTTP/1.1 404 Not Found"',
    )  # fmt: skip
    texts = [quote.text for quote in explanation.unusual]
    harmless = ("FAILED", "raise", "libnccl-net", "symbol", "DEBUG", "httpx")
    assert not any(word in text for text in texts for word in harmless)


@pytest.mark.parametrize("ends", ["", "x" * 90 + "\n"], ids=["short", "long"])
def test_its_number_is_that_of_its_line_in_a_log_of_any_length(ends: str) -> None:
    before = [f"filler {i} of the run" for i in range(9000)]
    data = "\n".join([*before, DECISIVE[1], "Aborted (core dumped)"]) + "\n" + ends * 9000
    explanation = explain_bytes(data.encode())
    assert [(quote.line, quote.text) for quote in explanation.unusual[:1]] == [(9001, DECISIVE[1])]


def test_no_healthy_run_of_the_corpus_and_no_proved_cause_quotes_a_line(need: Callable[[str, bool, str], None]) -> None:
    cases = corpus()
    need("corpus", bool(cases), "the corpus of labelled logs is not beside the project")
    answers = [explain_bytes(case.data) for case in cases]
    for answer in answers:
        named = answer.causes[0] if answer.causes else None
        is_proved = named is not None and named.confidence is not Confidence.LOW and named.cause != "remote_peer_died"
        if is_proved or answer.exit_code == 0 or answer.verdict is ExplainVerdict.UNFINISHED:
            assert answer.unusual == ()
    assert any(answer.unusual for answer in answers)


def test_the_background_holds_hashes_and_is_small() -> None:
    known = background()
    data = packed((), ())
    assert unpacked(data).forms == frozenset()
    assert len(known.forms) > 50
    assert len(known.words) > 1000
    assert 5 * (len(known.forms) + len(known.words)) < 200_000
    assert digest("error") in known.words


@given(st.sets(st.text(max_size=9), max_size=9), st.sets(st.text(max_size=9), max_size=9))
def test_a_background_is_read_as_it_was_written(forms: set[str], words: set[str]) -> None:
    known = unpacked(packed(forms, words))
    assert known.forms == {digest(form) for form in forms} and known.words == {digest(word) for word in words}


@given(st.binary(max_size=300), st.sampled_from([b"error ", b"\rfailed\n", b"Check failed: \xff"]))
def test_any_bytes_give_a_few_lines(junk: bytes, word: bytes) -> None:
    unusual = UnusualLines(lambda _text: False)
    unusual.read(0, 1, junk + word + junk + word)
    assert len(unusual.best(frozenset())) <= SHOWN


def test_a_flood_of_failures_costs_a_bounded_number_of_lines() -> None:
    asked: list[str] = []

    def is_secondary(text: str) -> bool:
        asked.append(text)
        return False

    unusual = UnusualLines(is_secondary)
    for source in range(60):
        unusual.read(source, 1, b"".join(b"error %s of the pump\n" % (b"ab" * (i % 50)) for i in range(1000)))
    assert SCORED < len(asked) <= ALL_SCORED


def test_a_form_has_no_prefix_number_address_or_path() -> None:
    lines = (
        "[rank3]: cannot open /data/set/shard-0003.bin at 0x7f3a20 after 30 s",
        "2026-05-02T10:00:01.5Z trainer-7 | cannot open /x/y.bin at 0x1 after 9 s",
        "(Worker_TP1 pid=77) ERROR 05-02 10:00:01 [loader.py:8] cannot open /z/y at 0xff after 1 s",
    )
    assert {form_of(words_of(line)) for line in (lines[0], lines[2])} == {"cannot open at after"}
    assert form_of(words_of(lines[1])).endswith("cannot open at after")
