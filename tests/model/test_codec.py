from __future__ import annotations

import dataclasses
import functools
import json
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.model import facts
from preflight.model.codec import LARGEST, decode, decode_value, encode, encode_value
from preflight.model.collective import Collective
from preflight.model.facts import Gap, Limit, LimitFacts, NodeFacts
from preflight.model.report import Report
from preflight.model.trial import CollectiveResult, RankEnd

RECORDS = [
    kind
    for kind in vars(facts).values()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind is not Gap
]

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

SCALARS = {
    str: st.text(max_size=8),
    int: st.integers(-LARGEST, LARGEST),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}


@functools.cache
def records(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: _values(hints[f.name]) for f in dataclasses.fields(kind)})


@functools.cache
def _values(kind: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if typing.get_origin(item) is tuple:
            key, value = typing.get_args(item)  # an object's keys, which differ from each other
            return st.dictionaries(_values(key), _values(value), max_size=2).map(lambda pairs: tuple(pairs.items()))
        return st.lists(_values(item), max_size=2).map(tuple)
    if typing.get_args(kind):
        return st.one_of([_values(each) for each in typing.get_args(kind)])
    if hasattr(kind, "from_text"):
        return st.text().map(kind.from_text)
    if dataclasses.is_dataclass(kind):
        return records(typing.cast(Any, kind))
    return SCALARS[kind] if kind in SCALARS else st.from_type(kind)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_record_comes_back_from_json_as_it_was(kind: type, data: st.DataObject) -> None:
    record = data.draw(records(kind))
    assert decode(kind, json.loads(json.dumps(encode(record)))) == record


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(record=records(Report))
def test_a_whole_report_comes_back_from_json_as_it_was(record: Report) -> None:
    assert decode(Report, json.loads(json.dumps(encode(record)))) == record


@given(value=_values(tuple[facts.Netif, ...] | Gap))
def test_a_fact_that_is_no_record_comes_back_as_it_was(value: tuple[facts.Netif, ...] | Gap) -> None:
    kind = typing.get_type_hints(NodeFacts)["netifs"]
    assert decode_value(kind, json.loads(json.dumps(encode_value(value)))) == value


@pytest.mark.parametrize("kind", [*RECORDS, Report], ids=lambda kind: kind.__name__)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_json_that_is_no_such_record_is_malformed_input(kind: type, data: st.DataObject) -> None:
    fields = [f.name for f in dataclasses.fields(kind)]
    document = data.draw(ANY_JSON | st.fixed_dictionaries(dict.fromkeys(fields, ANY_JSON), optional={"gaps": ANY_JSON}))
    try:
        decode(kind, document)
    except MalformedInput as error:
        assert "\n" not in str(error)


@given(document=ANY_JSON)
def test_a_document_that_holds_no_fact_is_malformed_input(document: object) -> None:
    try:
        decode_value(LimitFacts | Gap, document)
    except MalformedInput:
        return
    assert isinstance(document, dict)


def test_a_gap_is_null_and_its_reason_stands_in_the_nodes_gaps() -> None:
    limits = encode_value((facts.NumaNode(id=0, cpus=(1,), memory_bytes=Gap("no meminfo"), distances=(10,)),))
    assert limits["value"] == [{"id": 0, "cpus": [1], "memory_bytes": None, "distances": [10]}]
    assert limits["gaps"] == [{"fact": "value[0].memory_bytes", "reason": "no meminfo"}]


def test_the_error_names_the_wrong_path_inside_a_node_of_a_report() -> None:
    @dataclasses.dataclass(frozen=True)
    class Nodes:
        nodes: tuple[NodeFacts, ...]

    Nodes.__annotations__["nodes"] = tuple[NodeFacts, ...]
    with pytest.raises(MalformedInput, match=r"^nodes\[0\]: the key 'host' is missing"):
        decode(Nodes, {"nodes": [{}]})


def test_a_number_too_long_to_print_is_malformed_input() -> None:
    with pytest.raises(MalformedInput, match="expected a number"):
        decode(
            CollectiveResult,
            {f.name: 1 for f in dataclasses.fields(CollectiveResult)}
            | {"collective": Collective.BROADCAST.value, "min_us": 10**5000},
        )


def test_a_newer_reports_unknown_keys_are_ignored() -> None:
    document = encode(LimitFacts(1, 2, 3, Limit.UNLIMITED)) | {"rtprio": 5}
    assert decode(LimitFacts, document).nproc is Limit.UNLIMITED


def test_an_older_document_that_lacks_a_field_with_a_default_still_loads() -> None:
    older = {"rank": 1, "ended": "error", "stage": "init", "detail": "why", "gaps": []}
    assert decode(RankEnd, older) == RankEnd(1, "error", "init", "why")
    del older["detail"]
    with pytest.raises(MalformedInput, match="'detail' is missing"):
        decode(RankEnd, older)
