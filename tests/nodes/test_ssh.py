"""`check --on ssh:` with OpenSSH: nodes in namespaces, each with a sshd, a /tmp and a /dev/shm of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command import Command
from tests.conftest import PROJECT
from tests.netns import Netns, can_make_netns, make_nodes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SSHD, SSH = "/usr/sbin/sshd", "/usr/bin/ssh"
NODES = ("node0", "node1", "node2", "node3")
DOWN, FULL, HUNG = "node1", "node2", "node3"
# The project may lie in /tmp, and stays there; `ip netns exec` has made a mount namespace for it all.
NODE = """
set -e
mkdir -p /run/sshd {place}/keep
mount --bind {project} {place}/keep
mount -t tmpfs -o size={size} tmpfs /tmp
mount -t tmpfs -o size={size} tmpfs /dev/shm
mkdir -p {project}
mount --bind {place}/keep {project}
if [ {is_full} = 1 ]; then
  mount -t tmpfs -o size={size} tmpfs /var/tmp
  for place in /tmp /dev/shm /var/tmp; do cat /dev/zero >$place/filled 2>/dev/null || true; done
fi
exec {sshd} -D -e -f {place}/sshd_config
"""
CONFIG = """
Port 22
HostKey {place}/host
AuthorizedKeysFile {place}/id.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv PREFLIGHT_TEST_MARK={mark}
{more}
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that are reached by ssh from the first of them."""

    command: Command
    nodes: Sequence[Netns]
    place: Path
    daemons: Sequence[subprocess.Popen[bytes]]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `preflight check` on the first node, with the real ssh and this test's key and known hosts."""
        env = {"PATH": f"{self.place / 'bin'}:{os.environ['PATH']}", "PREFLIGHT_VERBOSE": ""}
        return self.command.start("check", *arguments, env=env, prefix=self.nodes[0].prefix)

    def wait_until_gone(self, within_s: float) -> None:
        """Wait until no process of preflight is left; what hangs in a login that preflight never passed stays."""
        until = time.monotonic() + within_s
        while left := [line for line in self.command.processes().values() if "preflight" in line]:
            assert time.monotonic() < until, left
            time.sleep(0.05)

    def left(self) -> list[str]:
        """Return what a run has in /tmp and /dev/shm of all nodes."""
        roots = [f"/proc/{daemon.pid}/root{folder}" for daemon in self.daemons for folder in ("/tmp", "/dev/shm")]
        return [name for root in roots for name in os.listdir(root) if name not in ("filled", PROJECT.parts[2])]


@pytest.fixture
def cluster(command: Command, need: Callable[[str, bool, str], None]) -> Iterator[Cluster]:
    """Start a sshd on each node but one; the disk of one is full, and one hangs after the login."""
    need("sshd", all(map(os.path.exists, (SSHD, SSH))), "needs Debian's openssh-server and openssh-client")
    need("netns", can_make_netns(), "network namespaces need root and iproute2")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ssh-", dir="/run")))
        for key in ("id", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
        (place / "known").write_text(f"{','.join(NODES)} {(place / 'host.pub').read_text()}")
        (place / "config").write_text(f"User root\nIdentityFile {place}/id\nUserKnownHostsFile {place}/known\n")
        (place / "bin").mkdir()
        (place / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {SSH} -F {place}/config "$@"\n')
        (place / "bin" / "ssh").chmod(0o755)
        nodes = stack.enter_context(make_nodes(len(NODES)))
        daemons = []
        for number, (name, node) in enumerate(zip(NODES, nodes, strict=True)):
            if name == DOWN:
                continue
            own = place / name
            own.mkdir()
            shutil.copy(place / "host", own / "host")
            shutil.copy(place / "id.pub", own / "id.pub")
            more = {
                HUNG: "ForceCommand exec sleep 300",
                FULL: 'ForceCommand cd /dev/shm && exec sh -c "$SSH_ORIGINAL_COMMAND"',  # its home is full, too
            }.get(name, "")
            (own / "sshd_config").write_text(CONFIG.format(place=own, mark=command.mark, more=more))
            size, is_full = ("64k", 1) if name == FULL else ("1g", 0)
            script = NODE.format(place=own, project=PROJECT, size=size, is_full=is_full, sshd=SSHD)
            log = stack.enter_context((own / "log").open("wb"))
            daemon = subprocess.Popen([*node.prefix, "sh", "-c", script], stdin=subprocess.DEVNULL, stderr=log)
            daemons.append(daemon)
            stack.callback(daemon.wait)
            stack.callback(daemon.kill)
            until = time.monotonic() + 20
            while b"listening" not in (own / "log").read_bytes():
                assert daemon.poll() is None and time.monotonic() < until, (number, (own / "log").read_text())
                time.sleep(0.05)
        yield Cluster(command, nodes, place, daemons)
        command.kill_all()


def test_one_page_says_which_node_is_down_full_or_silent(cluster: Cluster) -> None:
    with cluster.start("--on", "ssh:node[0-3]", "--nproc", "1", "--deadline", "40") as process:
        stdout, stderr = process.communicate(timeout=200)
    page = " ".join(stdout.split())
    assert process.returncode == 3, stdout + stderr
    assert "1 passed, 0 failed, 0 outliers, 3 unknown" in page, stdout
    assert "node1: unreachable: ssh: connect to host node1 port 22: Connection refused" in page
    of_full = json.loads((cluster.command.cwd / "preflight-reports" / "node2.json").read_text())
    assert (of_full["verdict"], "No usable temporary directory" in of_full["headline"]) == ("unknown", True), of_full[
        "headline"
    ]
    assert "node3: silent: nothing came within 70 s" in page
    assert "--exclude=node[1-3]" in page
    report = json.loads((cluster.command.cwd / "preflight-reports" / "node0.json").read_text())
    assert report["verdict"] == "ready"
    cluster.wait_until_gone(15)
    assert not cluster.left()


def test_ctrl_c_and_a_kill_leave_nothing_on_any_node(cluster: Cluster) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        with cluster.start("--on", "ssh:node[0,3]", "--nproc", "2") as process:
            until = time.monotonic() + 90
            while not any(name.startswith("preflight-") for name in cluster.left()):
                assert time.monotonic() < until, cluster.command.processes()
                time.sleep(0.05)
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=30)
        assert process.returncode == code, stdout + stderr
        if number is signal.SIGINT:
            assert "node[0,3] (2): stopped by SIGINT" in stdout
        cluster.wait_until_gone(15)
        assert not cluster.left()
