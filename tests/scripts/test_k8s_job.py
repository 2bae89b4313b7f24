"""The Kubernetes Job fits the schema, its parts fit each other, and its pods' command runs on two nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from preflight.trial.nodes.placement import Asked, find_placement
from tests.command import Command
from tests.conftest import PROJECT
from tests.netns import ETC_NETNS, can_make_netns, make_nodes, node_address

TEXT = (PROJECT / "preflight" / "data" / "k8s_job.yaml").read_text()
SERVICE, JOB = yaml.safe_load_all(TEXT)
POD: dict[str, Any] = JOB["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def environ(index: int) -> dict[str, str]:
    """Return what the container of a pod has: what the Job says, and what Kubernetes adds to an indexed one."""
    said = {each["name"]: each.get("value", f"worker-{index}") for each in CONTAINER["env"]}
    return said | {"JOB_COMPLETION_INDEX": str(index), "KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.mark.parametrize("document", [SERVICE, JOB], ids=["service", "job"])
def test_it_fits_kubernetes_own_schema(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_pods_find_each_other_by_the_headless_service() -> None:
    name = SERVICE["metadata"]["name"]
    assert SERVICE["spec"]["clusterIP"] == "None" and SERVICE["spec"]["publishNotReadyAddresses"]
    assert SERVICE["spec"]["selector"] == JOB["spec"]["template"]["metadata"]["labels"]
    assert POD["subdomain"] == name
    assert environ(0)["MASTER_ADDR"] == f"{JOB['metadata']['name']}-0.{name}"
    assert [environ(0)["MASTER_PORT"]] == [str(port["port"]) for port in SERVICE["spec"]["ports"]]


def test_every_index_is_a_place_among_as_many_nodes_as_there_are_pods() -> None:
    count = JOB["spec"]["completions"]
    assert (JOB["spec"]["completionMode"], JOB["spec"]["parallelism"]) == ("Indexed", count)
    places = [find_placement(Asked(), environ(index)) for index in range(count)]
    assert [(place.nodes, place.node_rank) for place in places] == [(count, index) for index in range(count)]
    assert {(place.host, place.ports) for place in places} == {("preflight-0.preflight", (29400,))}


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_pods_command_runs_on_two_nodes_and_each_has_its_files(
    command: Command, tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")
    out, path = tmp_path / "out", tmp_path / "bin"
    out.mkdir()
    path.mkdir()
    (path / "preflight").write_text(f'#!/bin/sh\nexec {command.python} -m preflight "$@"\n')
    (path / "preflight").chmod(0o755)
    argv = [*CONTAINER["command"], CONTAINER["args"][0].replace("/preflight &&", f"{out} &&")]
    with make_nodes(2) as nodes:
        running = []
        for index, node in enumerate(nodes):
            with (ETC_NETNS / node.name / "hosts").open("a") as hosts:  # what the cluster's DNS would answer
                hosts.write(f"{node_address(0)} {environ(0)['MASTER_ADDR']}\n")
            own = command.environ(environ(index)) | {"PATH": f"{path}:{command.environ()['PATH']}"}
            running.append(
                subprocess.Popen(
                    [*node.named(f"node{index}"), *argv],
                    env=own,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
            )
        pages = [each.communicate(timeout=150)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0], pages
    for index in range(2):
        report = json.loads((out / f"worker-{index}.json").read_text())
        assert (report["verdict"], report["world_size"]) == ("ready", 4)
        assert (out / f"worker-{index}.env").exists() and (out / f"worker-{index}.yaml").exists()
