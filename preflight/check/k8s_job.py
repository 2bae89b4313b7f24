"""Build the Kubernetes Job for `--on k8s:N`, and create the Job with kubectl."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from importlib import resources

from preflight.check.request import FORMS, Request
from preflight.errors import LaunchError, UsageError
from preflight.system.crew import Crew, Lost

NODES = re.compile(r"k8s:([1-9]\d{0,4})(?:x([1-9]\d{0,2}))?", re.ASCII)  # pods, one a node, and the GPUs of each
IMAGE = re.compile(r"\w[\w.:/@-]*", re.ASCII)
NO_IMAGE = "registry.example.org/train:latest"  # the placeholder in the file
START_S, WAITS_S = 300.0, 900.0  # until a pod runs; the nodes wait for each other, as an image may be on its way
KUBECTL = """printf %s "$1" | kubectl create -f - >&2"""
KUBECTL_S = 120.0
STDERR = 2


def k8s_job(request: Request) -> str:
    """Return the Kubernetes service and Job for `request`, as YAML.

    Raise UsageError if the Job can't express an option of `request`.
    """
    named = NODES.fullmatch(str(request.on))
    if named is None:
        raise UsageError(f"--on {request.on}: {FORMS}")
    if request.json is not None or request.report != Request().report:
        raise UsageError("--on k8s: with --json or --report: each report stays on its node, in /var/lib/preflight-env")
    if request.image is not None and IMAGE.fullmatch(request.image) is None:
        raise UsageError(f"--image {request.image[:80]!r} is no name of an image")
    deadline_s = request.deadline or max(WAITS_S, request.until_s)
    there = replace(request, on=None, image=None, apply=False, deadline=deadline_s)
    command = shlex.join(["preflight", "check", *there.arguments()])
    if not command.isprintable():
        raise UsageError("--on k8s: a value has a line break or another character that can't be printed")
    text = (resources.files("preflight") / "data" / "k8s_job.yaml").read_text(encoding="utf-8")
    body = text[text.index("apiVersion:") :]
    count, gpus = named[1], named[2] or "8"
    for old, new in (
        ("completions: 2\n", f"completions: {count}\n"),
        ("parallelism: 2\n", f"parallelism: {count}\n"),
        ('PET_NNODES, value: "2"', f'PET_NNODES, value: "{count}"'),
        ("activeDeadlineSeconds: 1200", f"activeDeadlineSeconds: {deadline_s + START_S:.0f}"),
        ("nvidia.com/gpu: 8", f"nvidia.com/gpu: {gpus}"),
        (NO_IMAGE, request.image or NO_IMAGE),
        ("preflight check --profile quick --deadline 900", command.replace("$(", "$$(")),  # which Kubernetes expands
    ):
        before, found, after = body.partition(old)
        if not found:
            raise LookupError(f"data/k8s_job.yaml has no {old!r}")  # the file is part of the program
        body = f"{before}{new}{after}"
    return body


def create(job: str) -> None:
    """Create the Kubernetes Job `job`, which is YAML text, with kubectl.

    The output of kubectl goes to stderr. Raise LaunchError if kubectl fails.
    """
    with Crew[str]() as crew:
        crew.start("kubectl", ("sh", "-c", KUBECTL, "sh", job), os.environ, KUBECTL_S, STDERR)
        child = crew.children["kubectl"]
        why = next(lost for _, _, lost in crew.listen() if lost is not None)
    if why is not Lost.DIED or child.exitcode != 0:
        how = f"within {KUBECTL_S:.0f} s" if why is Lost.LATE else f"(exit code {child.exitcode})"
        raise LaunchError(f"--apply: kubectl did not create the Job {how}")
