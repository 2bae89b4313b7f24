"""`check --on k8s:N`: the Job fits Kubernetes' schema and the pods' command is the asked one. `kubectl` stands in."""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from preflight.check.k8s_job import NO_IMAGE, k8s_job
from preflight.check.request import Request
from preflight.errors import UsageError
from preflight.model.profile import Profile
from tests.command import Command, Ran

IMAGE = "registry.example.org:5000/team/train@sha256:0123"


def parts(request: Request) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the Job, its spec of a pod and the only container, all of it as the schema wants it."""
    service, job = yaml.safe_load_all(k8s_job(request))
    for each in (service, job):
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return job, pod, container


def shell_words(container: dict[str, Any]) -> list[str]:
    """Return the words of the pods' `preflight check`, as Kubernetes passes them to its shell."""
    (text,) = container["args"]
    return shlex.split(text.replace("$$(", "$(").partition("exec ")[2])


@pytest.mark.parametrize(("on", "pods", "gpus"), [("k8s:1", 1, "8"), ("k8s:16", 16, "8"), ("k8s:3x4", 3, "4")])
def test_every_node_is_a_pod_of_a_valid_job(on: str, pods: int, gpus: str) -> None:
    job, _, container = parts(Request(on=on, image=IMAGE))
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (pods, pods)
    assert {"name": "PET_NNODES", "value": str(pods)} in container["env"]
    assert str(container["resources"]["limits"]["nvidia.com/gpu"]) == gpus
    assert container["image"] == IMAGE
    assert parts(Request(on=on))[2]["image"] == NO_IMAGE


def test_the_pods_check_what_was_asked_and_have_time_for_it() -> None:
    request = Request(on="k8s:2", profile=Profile.STANDARD, policy="it's $(HOSTNAME)", skip=["memlock"], shadow=True)
    job, _, container = parts(request)
    assert shell_words(container)[:3] == ["preflight", "check", "--profile=standard"]
    assert {"--policy=it's $(HOSTNAME)", "--skip=memlock", "--shadow", "--deadline=900.000"} < set(
        shell_words(container)
    )
    assert "$$(HOSTNAME)" in container["args"][0]
    assert job["spec"]["activeDeadlineSeconds"] == 1200
    longer = parts(Request(on="k8s:2", profile=Profile.BURN))[0]
    assert longer["spec"]["activeDeadlineSeconds"] == Request(profile=Profile.BURN).until_s + 300
    assert not any(each.startswith(("--on", "--image", "--apply")) for each in shell_words(container))


@pytest.mark.parametrize("on", ["k8s:", "k8s:0", "k8s:-1", "k8s:2x0", "k8s:2x", "k8s:node1", "k8s:2\n"])
def test_what_is_no_number_of_nodes_is_refused(on: str) -> None:
    with pytest.raises(UsageError, match="k8s:4x8"):
        k8s_job(Request(on=on))


@pytest.mark.parametrize(
    "other",
    [{"image": "a b"}, {"image": "-x"}, {"image": "a\nb: c"}, {"policy": "a\nb"}, {"json": "-"}, {"report": "x"}],
)
def test_what_the_job_can_not_hold_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        k8s_job(Request(on="k8s:2", **other))


@pytest.mark.parametrize("other", [{"on": "ssh:n1", "image": "a"}, {"apply": True}, {"on": "k8s:2", "apply": True}])
def test_a_job_without_kubernetes_or_without_an_image_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--image"):
        Request(**other).must_make_sense(set())


def run(command: Command, tmp_path: Path, kubectl: str, *arguments: str) -> Ran:
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{kubectl}\n")
    (tmp_path / "kubectl").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PREFLIGHT_VERBOSE": ""}
    return command.run("check", "--on", "k8s:2", "--image", IMAGE, *arguments, env=env)


def test_it_is_printed_or_given_to_kubectl(command: Command, tmp_path: Path) -> None:
    printed = run(command, tmp_path, "exit 9")
    assert (printed.code, printed.stderr) == (0, "")
    kubectl = f"echo $* >{tmp_path}/said; cat >{tmp_path}/job; echo job.batch/preflight created"
    applied = run(command, tmp_path, kubectl, "--apply")
    assert (applied.code, applied.stdout) == (3, "")  # nobody may take it for a verdict
    assert "job.batch/preflight created\n" in applied.stderr and "kubectl logs -f job/preflight" in applied.stderr
    assert (tmp_path / "said").read_text() == "create -f -\n"
    assert (tmp_path / "job").read_text() == printed.stdout == k8s_job(Request(on="k8s:2", image=IMAGE))
    assert not list(command.cwd.iterdir())


def test_what_kubectl_refuses_is_unknown_and_ctrl_c_ends_it(command: Command, tmp_path: Path) -> None:
    refused = run(command, tmp_path, "echo 'Error: AlreadyExists' >&2; exit 1", "--apply")
    assert refused.code == 3
    assert "AlreadyExists" in refused.stderr and "kubectl did not create the Job (exit code 1)" in refused.stderr
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\ntouch {tmp_path}/began\nsleep 300\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PREFLIGHT_VERBOSE": ""}
    with command.start("check", "--on", "k8s:2", "--image", IMAGE, "--apply", env=env) as process:
        until = time.monotonic() + 30
        while not (tmp_path / "began").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    command.wait_until_gone(5)
