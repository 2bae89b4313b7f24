"""Odd networks: no interface but lo, interfaces with hostile names, a name server that never answers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.command import Command, default_trial
from tests.netns import Netns, can_make_netns, make_netns, make_netns_with_dead_name_server

HOSTILE = ("`id>y`", "$(touch${IFS}x)")
SHELLS = ("sh", "bash", "zsh")
PRINT = 'set -eu; . ./preflight.env; printf "%s\\n" "$GLOO_SOCKET_IFNAME" "$NCCL_SOCKET_IFNAME"'

pytestmark = [pytest.mark.integration, pytest.mark.timing, pytest.mark.heavy(2)]


@pytest.fixture(autouse=True)
def _namespaces(need: Callable[[str, bool, str], None]) -> None:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")


@pytest.fixture(scope="module")
def hostile() -> Iterator[Netns]:
    """A namespace with two interfaces whose names are commands."""
    with make_netns() as namespace:
        for number, name in enumerate(HOSTILE):
            namespace.add_interface(name, f"10.78.{number}.1/24")
        yield namespace


def test_one_node_with_only_loopback_is_ready_and_warned(command: Command) -> None:
    with make_netns() as namespace:
        ran = command.run("check", "--nproc", "2", prefix=namespace.prefix)
    assert ran.code == 0, ran.stdout
    found = [(finding["check"], finding["severity"]) for finding in ran.report["findings"]]
    assert found == [("netif-usable", "warn")]
    assert "only the loopback interface is up" in " ".join(ran.stdout.split())


def test_a_loopback_that_is_down_is_not_ready_and_named(command: Command) -> None:
    with make_netns(lo_is_up=False) as namespace:
        ran = command.run("check", "--nproc", "2", prefix=namespace.prefix)
    assert ran.code == 1, ran.stdout
    assert ran.took_s < 30
    failed = [finding for finding in ran.report["findings"] if finding["severity"] == "fail"]
    assert {finding["check"] for finding in failed} == {"netif-usable", "trial-failed"}
    assert any("ip link set lo up" in finding["fix"] for finding in failed)
    assert any("Unable to find interface for: [127.0.0.1]" in finding["problem"] for finding in failed)
    assert "lo: loopback, down" in " ".join(ran.stdout.split())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_interface_name_arrives_exactly_and_runs_nothing(
    command: Command, hostile: Netns, name: str, need: Callable[[str, bool, str], None]
) -> None:
    ran = command.run(
        "check", "--backend", "simnccl@simnccl", "--nproc", "2", "--stage-limit", "3",
        env={"SIMNCCL": f"hang:unless=GLOO_SOCKET_IFNAME={name}"}, prefix=hostile.prefix,
    )  # fmt: skip
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["verdict"] == "ready_with_env"
    assert ran.report["advice"]["env"] == {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}
    assert f"export GLOO_SOCKET_IFNAME='{name}'" in ran.stdout, "what a reader may copy is quoted"
    before = sorted(path.name for path in command.cwd.iterdir())
    installed = [shell for shell in SHELLS if shutil.which(shell)]
    for shell in installed:
        sourced = subprocess.run(
            [shell, "-c", PRINT], cwd=command.cwd, env=command.environ(), capture_output=True, text=True, check=False
        )
        assert sourced.returncode == 0, sourced.stderr
        assert sourced.stdout == f"{name}\n={name}\n"
        assert sourced.stderr == ""
    assert sorted(path.name for path in command.cwd.iterdir()) == before == ["preflight-report.json", "preflight.env"]
    need("zsh", len(installed) == len(SHELLS), f"sourced in {', '.join(installed)} only: the others are not installed")


def test_a_hostile_name_is_left_alone_where_the_job_has_several_nodes(command: Command, hostile: Netns) -> None:
    command.run(
        "check", "--backend", "simnccl@simnccl", "--nproc", "2", "--stage-limit", "3",
        env={"SIMNCCL": f"hang:unless=GLOO_SOCKET_IFNAME={HOSTILE[1]}"}, prefix=hostile.prefix,
    )  # fmt: skip
    sourced = subprocess.run(
        ["sh", "-c", 'set -eu; . ./preflight.env; echo "${GLOO_SOCKET_IFNAME-unset}"'],
        cwd=command.cwd, env=command.environ({"NNODES": "2"}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sourced.stdout == "unset\n"


def test_probe_prints_hostile_names_as_they_are(command: Command, hostile: Netns) -> None:
    ran = command.run("probe", prefix=hostile.prefix)
    assert ran.code == 0, ran.stderr
    for name in HOSTILE:
        assert f"  {name}  " in ran.stdout
    assert list(command.cwd.iterdir()) == []


@pytest.mark.parametrize(("arguments", "within_s"), [((), 30), (("--deadline", "20"), 20)], ids=["profile", "deadline"])
def test_a_dead_name_server_breaks_no_deadline(command: Command, arguments: tuple[str, ...], within_s: float) -> None:
    with make_netns_with_dead_name_server() as namespace:
        ran = command.run("check", "--nproc", "2", *arguments, prefix=namespace.named("odd-name"))
    assert ran.took_s < within_s
    assert ran.code == 0, ran.stdout
    trial = default_trial(ran.report)
    assert trial["outcome"] == "ok"
    assert trial["duration_s"] < 10
    assert "name_resolution no answer within" in " ".join(ran.stdout.split())


def test_a_dead_name_server_makes_a_gap_and_not_a_hang_of_probe(command: Command) -> None:
    with make_netns_with_dead_name_server() as namespace:
        ran = command.run("probe", prefix=namespace.named("odd-name"))
    assert ran.code == 0, ran.stdout
    assert ran.took_s < 8
    assert "name_resolution no answer within" in " ".join(ran.stdout.split())
