"""Every parser of what comes from outside, with what follows at once from what it returns, and good input for it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from preflight import pg_timeout
from preflight.api import safe_timeout
from preflight.check import survey
from preflight.check.options import parse_collectives, parse_sizes, parse_tests
from preflight.check.request import Request
from preflight.errors import PreflightError
from preflight.explain.explain_files import explain_paths
from preflight.explain.explain_logs import Log, explain
from preflight.explain.flight_recorder import read_recording
from preflight.facts.lookback import parse_history as parse_kernel_history
from preflight.facts.process import parse_nccl_conf
from preflight.fleet.known_good import learn_from
from preflight.fleet.overview import overview
from preflight.job.job_gpus import gpus_of_job
from preflight.job.reuse import Now, why_not
from preflight.judge.policy import parse_policy
from preflight.model.codec import decode, encode
from preflight.model.facts import EnvVar
from preflight.model.input_limits import (
    ARCHIVE,
    BASELINE,
    CAPTURE,
    MODEL_CONFIG,
    PERFTEST,
    POLICY,
    RECORDING,
    REPORT,
    RUN_RECORD,
    STUCK_NODE,
    TOPOLOGY,
    InputLimit,
    parse_json,
)
from preflight.model.job import Job
from preflight.model.joint import Hello
from preflight.model.nccl_log import read_nccl_log
from preflight.model.parsing import parse_duration_s
from preflight.model.perftest import parse_perftest
from preflight.model.profile import Profile
from preflight.model.saved_report import load_baseline, load_report
from preflight.search.backend_choice import parse_backend
from preflight.show.explain import explain_page, render_explanation_env
from preflight.show.fleet import fleet_page, render_host_list, state_reasons
from preflight.show.fleet_html import render_fleet_html
from preflight.show.formats import Format
from preflight.show.probe_page import probe_page
from preflight.show.render import render_as
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style
from preflight.stuck.collect.ras import parse_ras
from preflight.stuck.collect.stacks import parse_dump
from preflight.stuck.judge.answer import answer
from preflight.stuck.node_files import read_nodes
from preflight.system.inputs import as_text
from preflight.timeout.job_text import parse_count, parse_lora_share, parse_model_shape, parse_params, parse_run_record
from preflight.timeout.pauses import pauses
from preflight.trial.launch_result import parse_event
from preflight.trial.nodes.hostlist import expand_hosts
from preflight.trial.nodes.placement import Asked, find_placement, parse_endpoint, step_nodes
from preflight.trial.nodes.wire import pack, parse_message, unpack
from tests.hostile import seeds
from tests.show.judged import accepted
from tests.timeout.test_safe_timeout import NOTHING

CHECKS = frozenset({"shm-size", "memlock", "gpu-driver"})
STYLE = Style(width=100)
NODE = accepted().nodes[0]
TODAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = Now(NODE, ("GPU-1",), ("GPU-1",), TODAY, TODAY, Profile.QUICK, None, 1, False)
HELLO = Hello(2, "0", "x", 2, 1, "n1", 60.0)


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, good input for it, and what the price list says of such input; None where that has no size."""

    name: str
    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    limit: InputLimit | None = None


def _report(data: bytes) -> None:
    report = load_report(as_text(data))
    forms = list(Format)
    for form in (Format.ENV, forms[len(data) % len(forms)]):  # all of them in turn
        with suppress(PreflightError):
            render_as(form, report)
    why_not(report, NOW, 1e9, 1)
    safe_timeout("7B", report=report)


def _fleet(data: bytes) -> None:
    texts = (as_text(data).replace(NODE.host, f"n{number}") for number in range(5))
    documents = [(f"{number}.json", parse_json(text, REPORT, "r.json"), "") for number, text in enumerate(texts)]
    compared = overview(documents)
    fleet_page(compared).shown(Detail.ALL, STYLE)
    render_fleet_html(compared)
    render_host_list([each.host for each in compared.failing], state_reasons(compared.failing))
    with suppress(PreflightError):  # of nodes that are not all well nothing is learnt
        learn_from(documents)


def _capture(data: bytes) -> None:
    found = survey.survey_capture(as_text(data), "0,1")
    probe_page(found.node, *found.checked, 0, found.gpu_set, found.expected).shown(Detail.ALL, STYLE)


def _environment(data: bytes) -> None:
    variables = _named(data)
    listed = tuple(EnvVar(name, value) for name, value in sorted(variables.items()))
    found = survey.survey(replace(NODE, environment=listed), None)
    probe_page(found.node, *found.checked, 0, None, None).shown(Detail.ALL, STYLE)
    with suppress(PreflightError):
        pg_timeout(variables)


def _placement(data: bytes) -> None:
    variables = _named(data)
    gpus_of_job(["torchrun", "--nproc_per_node", variables.get("SLURM_NTASKS", "2"), "x.py"], variables, 8)
    step_nodes(variables)
    find_placement(Asked(), variables)


def _named(data: bytes) -> dict[str, str]:
    words = (line.partition("=") for line in as_text(data).split("\n"))
    return {name: value for name, _, value in words if name}


def _archive(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        explanation = explain_paths([file.name])
    explain_page(explanation).shown(Detail.ALL, STYLE)
    render_explanation_env(explanation)


def _run_record(data: bytes) -> None:
    silences = parse_run_record(as_text(data), "preflight-run.json")
    pauses(Job(silences=silences), NOTHING)


def _stuck_node(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "stuck-n0.json").write_bytes(data)
        nodes, _ = read_nodes(folder)
    report = answer(nodes)
    stuck_page(report).shown(Detail.ALL, STYLE)
    stuck_page(report).shown(Detail.SCREEN, STYLE)


def _option(option: str, read: Callable[[str], object], *good: str) -> Target:
    return Target(option, lambda data: read(os.fsdecode(data)), tuple(text.encode() for text in good))


def _documents() -> tuple[Target, ...]:
    return (
        Target("report", _report, seeds.REPORTS, REPORT),
        Target("fleet", _fleet, seeds.REPORTS, REPORT),
        Target("baseline", lambda data: load_baseline(as_text(data)), (seeds.BASELINE,), BASELINE),
        Target("policy", lambda data: parse_policy(as_text(data), "p.toml", CHECKS, "2026-01-01"), (seeds.POLICY,),
               POLICY),
        Target("capture", _capture, seeds.CAPTURES, CAPTURE),
        Target("kernel_history", lambda data: parse_kernel_history(parse_json(as_text(data), CAPTURE, "x")),
               (seeds.KERNEL_HISTORY,)),
        Target("topology", lambda data: survey.survey_topology(as_text(data)), (seeds.TOPOLOGY,), TOPOLOGY),
        Target("model_config", lambda data: parse_model_shape(as_text(data), "config.json"), (seeds.MODEL_CONFIG,),
               MODEL_CONFIG),
        Target("run_record", _run_record, (seeds.RUN_RECORD,), RUN_RECORD),
    )  # fmt: skip


def _logs() -> tuple[Target, ...]:
    return (
        Target("flight_recorder", lambda data: read_recording("nccl_trace_rank_0", data), seeds.DUMPS, RECORDING),
        Target("log", lambda data: explain([Log("x.log", [data])]), seeds.LOGS),
        Target("archive", _archive, seeds.ARCHIVES, ARCHIVE),
        Target("nccl_log", lambda data: read_nccl_log(as_text(data).splitlines()).carriers(), seeds.LOGS),
        Target("stuck_node", _stuck_node, (seeds.NODE,), STUCK_NODE),
        Target("stacks", lambda data: parse_dump(as_text(data)), (seeds.STACKS,)),
        Target("perftest", lambda data: parse_perftest(as_text(data), "x"), seeds.PERFTEST, PERFTEST),
        Target("ras", lambda data: parse_ras(as_text(data), "x"), seeds.RAS),
    )


def _settings() -> tuple[Target, ...]:
    return (
        Target("environment", _environment, (seeds.ENVIRONMENT,)),
        Target("placement", _placement, seeds.PLACES),
        Target("hostlist", lambda data: expand_hosts(as_text(data)), (b"n[1-3,07],gpu[01-02]-ib,solo",)),
        Target("nccl_conf", lambda data: parse_nccl_conf("/etc/nccl.conf", as_text(data)), (seeds.NCCL_CONF,)),
        Target("message", parse_message, (b'{"kind": "hello", "rank": 1}\n',)),
        Target("hello", lambda data: decode(Hello, parse_message(data).get("hello")),
               (json.dumps({"kind": "hello", "hello": encode(HELLO)}).encode(),)),
        Target("packed", lambda data: unpack(as_text(data)), (pack({"a": [1] * 50, "b": "x"}).encode(),)),
        Target("event", parse_event, (b'{"event": "step", "label": "x"}\n',)),
    )  # fmt: skip


def _options() -> tuple[Target, ...]:
    return (
        _option("--sizes", parse_sizes, "1K:1G", "8:128M:4", "64M"),
        _option("--collectives", parse_collectives, "all", "all_reduce,all_gather_perf"),
        _option("--tests", parse_tests, "all", "pairs,gpus"),
        _option("--skip", lambda text: Request(skip=[text]).must_make_sense(CHECKS), "memlock,shm-size"),
        _option("--gpus", lambda text: survey.survey(NODE, text), "0-1", "1,0"),
        _option("--backend", parse_backend, "nccl", "simnccl@simnccl"),
        _option("--params", parse_params, "7B", "47B/13B", "8x7B", "7_000_000_000"),
        _option("--timeout", lambda text: parse_duration_s(text, "--timeout"), "1h30m", "90s", "1.5h"),
        _option("--lora", parse_lora_share, "0.5%"),
        _option("--ranks", lambda text: parse_count(text, "--ranks", 10**6), "64"),
        _option("--rdzv-endpoint", lambda text: parse_endpoint(text, "--rdzv-endpoint"), "n1:29400", "[::1]:1"),
    )


def targets() -> tuple[Target, ...]:
    """Return every parser."""
    return (*_documents(), *_logs(), *_settings(), *_options())


def without_target(limits: Collection[InputLimit]) -> set[str]:
    """Return the kinds of a price list that nothing here mutates."""
    return {limit.kind for limit in limits} - {target.limit.kind for target in targets() if target.limit}
