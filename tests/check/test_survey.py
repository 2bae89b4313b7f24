"""Captures: the same facts, none of the names."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.check.survey import survey_capture, survey_topology
from preflight.errors import MalformedInput
from preflight.facts.capture import capture_document, open_capture, scrubber_of
from preflight.facts.run import Capture, probe_node
from preflight.model.codec import encode
from preflight.model.facts import Gap
from preflight.system.kernel_queries import live_machine
from preflight.system.machine import Machine, Tree
from tests.corpus import CORPUS, corpus_files, need_corpus, unpack
from tests.sysroot import answering

TREES = [
    path for path in corpus_files("sysfs", "hwloc*.tar.*") if any(w in path.name for w in ("2n8c", "fakepci", "gb10"))
]


def _assert_same_facts(machine: Machine) -> str:
    """Return the capture of a machine, from which the same facts come, scrubbed alike."""
    capture = Capture()
    node, _ = probe_node(machine, capture=capture)
    text = capture_document(capture)
    scrub = scrubber_of(capture.reads)
    capture_document(capture)
    replay, silent = open_capture(text)
    again, _ = probe_node(replay, silent=silent)
    # The mapping is by first occurrence, so the same scrubber must have gone through the reads before the facts.
    for kind in sorted(capture.reads):
        for key, note in sorted(capture.reads[kind].items()):
            if kind != "ask":
                scrub.text(key, with_host=key.startswith("sys/fs/cgroup/"))
            if not (kind == "data" or (kind == "ask" and key == "software")):
                scrub.value(note)
    facts = encode(node)
    software = facts.pop("software")
    replayed = encode(again)
    assert replayed.pop("software") == software
    assert replayed == scrub.value(facts)
    return text


def test_a_capture_of_this_machine_gives_its_facts() -> None:
    _assert_same_facts(live_machine())


def test_a_capture_of_this_machine_names_neither_it_nor_its_addresses() -> None:
    capture = Capture()
    probe_node(live_machine(), capture=capture)
    text = capture_document(capture).replace("proc/sys/vm/", "")  # the kernel's word, whatever the host is called
    host = socket.gethostname()
    assert not re.search(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", text)
    for folder in Path("/sys/class/net").iterdir():
        address = (folder / "address").read_text().strip()
        assert address == "00:00:00:00:00:00" or address not in text
    answer = live_machine().ask("interfaces")
    for entry in answer:
        for address in [*entry["addresses"], *entry["gateways"]]:
            assert address in ("127.0.0.1", "::1") or f'"{address}"' not in text
    home = os.path.expanduser("~")
    assert home == "/root" or home not in text


def test_the_software_of_a_capture_keeps_versions_that_look_like_addresses() -> None:
    answers = {"software": {"python": "3.11.7", "preflight": "1.2.3.4", "torch": {"unreadable": "none"}}}
    capture = Capture()
    probe_node(answering(Tree(Path("/nonexistent")), answers), capture=capture)
    assert "1.2.3.4" in capture_document(capture)


def test_a_probe_that_gave_no_answer_is_silent_for_the_same_reason_again() -> None:
    capture = Capture(reads={}, silent={"nvml": "no answer within 5.0 s; the call is stuck"})
    replay, silent = open_capture(capture_document(capture))
    node, _ = probe_node(replay, silent=silent)
    assert isinstance(node.gpus, Gap)
    assert "stuck" in node.gpus.reason


@pytest.mark.parametrize("archive", TREES or [CORPUS / "sysfs"], ids=lambda path: path.name)
def test_a_capture_of_a_recorded_tree_gives_its_facts(archive: Path, tmp_path: Path) -> None:
    for root in unpack(need_corpus(archive), tmp_path):
        _assert_same_facts(Tree(root))


GOOD = {"preflight_capture": 1, "reads": {"text": {"proc/x": {"value": "1"}}}, "silent": {}}


@pytest.mark.parametrize(
    "document",
    [
        "", "nonsense", "[]", "1", "null", "{}", '{"preflight_capture": 2}', '{"preflight_capture": true, "reads": {}}',
        '{"preflight_capture": 1}', '{"preflight_capture": 1, "reads": []}', "[" * 100_000, '{"a": ' * 50_000,
        json.dumps(GOOD | {"preflight_capture": 2}),
        json.dumps(GOOD | {"preflight_capture": True}),
        json.dumps(GOOD | {"silent": {"nvml": 1}}),
        json.dumps(GOOD | {"silent": []}),
        json.dumps(GOOD | {"reads": {"text": []}}),
        json.dumps(GOOD | {"reads": {"text": {"x": 1}}}),
        json.dumps(GOOD | {"reads": {"text": {"x": {"value": 1}}}}),
        json.dumps(GOOD | {"reads": {"names": {"x": {"value": [1]}}}}),
        json.dumps(GOOD | {"reads": {"exists": {"x": {"value": 1}}}}),
        json.dumps(GOOD | {"reads": {"data": {"x": {"value": "zz"}}}}),
        json.dumps(GOOD | {"reads": {"ask": {"x": {}}}}),
        json.dumps(GOOD | {"reads": {"ask": {"x": {"unreadable": 1}}}}),
    ],
)  # fmt: skip
def test_what_is_no_capture_is_refused_in_one_line(document: str) -> None:
    with pytest.raises(MalformedInput) as refused:
        open_capture(document)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9**9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["gpus", "torch"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
QUESTIONS = st.sampled_from(["nvml", "interfaces", "rlimits", "software", "uname", "shm_mapped", "environment", "home"])


@pytest.mark.integration
@settings(max_examples=50, deadline=None)  # each example probes, in processes of their own
@given(st.dictionaries(QUESTIONS, JSON, max_size=4))
def test_a_capture_with_wrong_answers_gives_gaps_or_is_refused(answers: dict[str, object]) -> None:
    reads = {"ask": {question: {"value": value} for question, value in answers.items()}}
    try:
        survey_capture(json.dumps(GOOD | {"reads": reads}))
    except MalformedInput as error:
        assert "\n" not in str(error)


TEN = [f"GPU{i}" for i in range(10)]


def _ten_on_two_sockets() -> str:
    def level(a: int, b: int) -> str:
        return "X" if a == b else "SYS" if (a < 5) != (b < 5) else "PIX" if a // 5 == b // 5 else "NODE"

    rows = [
        "\t".join([TEN[a], *(level(a, b) for b in range(10)), "0-31" if a < 5 else "32-63", "01"[a // 5], "N/A"])
        for a in range(10)
    ]
    return "\t" + "\t".join([*TEN, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\n" + "\n".join(rows) + "\n"


def test_four_of_ten_gpus_across_the_sockets_are_told_of_a_better_set() -> None:
    seen = survey_topology(_ten_on_two_sockets(), "3,4,5,6")
    assert seen.gpu_set is not None
    assert [crossing.boundary.name for crossing in seen.gpu_set.crossings] == ["NUMA", "SWITCH"]
    assert len(seen.gpu_set.better) == 4
    assert {gpu // 5 for gpu in seen.gpu_set.better} in ({0}, {1})
    assert [finding.check for finding in seen.checked.findings] == ["gpu-set"]


def test_four_of_ten_gpus_on_one_socket_cross_nothing() -> None:
    seen = survey_topology(_ten_on_two_sockets(), "6,7,8,9")
    assert seen.gpu_set is not None
    assert seen.gpu_set.crossings == ()
    assert seen.gpu_set.better == ()
    assert seen.checked.findings == ()
