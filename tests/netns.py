"""Network namespaces and small file systems for tests: made, used and always removed again."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ETC_NETNS = Path("/etc/netns")  # `ip netns exec NAME` mounts /etc/netns/NAME/* over /etc/*
BLACKHOLE = "198.51.100.53"  # TEST-NET-2: routed into nothing below


@dataclass(frozen=True, slots=True)
class Netns:
    """A network namespace that exists."""

    name: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command for it to run inside."""
        return ("ip", "netns", "exec", self.name)

    def named(self, host: str) -> tuple[str, ...]:
        """What to put before a command for it to run inside, on a host of this name."""
        return (*self.prefix, "unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", host)

    def ip(self, *arguments: str) -> None:
        """Run `ip` inside."""
        subprocess.run(["ip", "-n", self.name, *arguments], check=True, capture_output=True)

    def add_interface(self, name: str, address: str) -> None:
        """Add an interface that is up, has carrier and this address; its other end stays in the namespace, bare."""
        other = f"x{uuid.uuid4().hex[:8]}"
        self.ip("link", "add", name, "type", "veth", "peer", "name", other)
        self.ip("addr", "add", address, "dev", name)
        self.ip("link", "set", other, "addrgenmode", "none")
        self.ip("link", "set", name, "up")
        self.ip("link", "set", other, "up")


def can_make_netns() -> bool:
    """Tell whether namespaces can be made here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    with contextlib.suppress(subprocess.CalledProcessError), make_netns():
        return True
    return False


@contextlib.contextmanager
def make_netns(lo_is_up: bool = True, name_server: str = "", hosts: str = "127.0.0.1 localhost\n") -> Iterator[Netns]:
    """Make a namespace with nothing but `lo`; `name_server` goes into its resolv.conf, `hosts` is its /etc/hosts."""
    namespace = Netns(f"pf{uuid.uuid4().hex[:8]}")
    etc = ETC_NETNS / namespace.name
    had_etc_netns = ETC_NETNS.exists()
    try:
        etc.mkdir(parents=True)
        (etc / "hosts").write_text(hosts)
        (etc / "resolv.conf").write_text(f"nameserver {name_server}\n" if name_server else "")
        subprocess.run(["ip", "netns", "add", namespace.name], check=True, capture_output=True)
        if lo_is_up:
            namespace.ip("link", "set", "lo", "up")
        yield namespace
    finally:
        subprocess.run(["ip", "netns", "delete", namespace.name], check=False, capture_output=True)
        shutil.rmtree(etc, ignore_errors=True)
        if not had_etc_netns:
            with contextlib.suppress(OSError):  # another test's namespace may be in it by now
                ETC_NETNS.rmdir()


@contextlib.contextmanager
def make_nodes(
    count: int, netifs: tuple[str, ...] = (), own_address: str = "", name_server: str = ""
) -> Iterator[list[Netns]]:
    """Make namespaces `node0`, `node1`, ... on one bridge, with the addresses 10.79.0.1, 10.79.0.2, ...

    Each knows its own name and the others' from its hosts file; with `own_address`, that is what its own name is there.
    The bridge lies in a namespace of its own, so that nothing of the host is touched.
    """
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(make_netns())
        switch.ip("link", "add", "br0", "type", "bridge")
        switch.ip("link", "set", "br0", "up")
        nodes = []
        for number in range(count):
            names = [
                f"{own_address or node_address(k)} node{k}" if k == number else f"{node_address(k)} node{k}"
                for k in range(count)
            ]
            hosts = "\n".join(["127.0.0.1 localhost", *names]) + "\n"
            node = stack.enter_context(make_netns(hosts=hosts, name_server=name_server))
            netif = netifs[number] if netifs else "eth0"
            switch.ip("link", "add", f"port{number}", "type", "veth", "peer", "name", netif, "netns", node.name)
            switch.ip("link", "set", f"port{number}", "master", "br0", "up")
            node.ip("addr", "add", f"{node_address(number)}/24", "dev", netif)
            node.ip("link", "set", netif, "up")
            nodes.append(node)
        yield nodes


@contextlib.contextmanager
def second_network(nodes: list[Netns], netif: str = "eth1", narrow_mtu: int = 0) -> Iterator[None]:
    """Give each node another interface, on a bridge of its own, with the addresses 10.80.0.1, 10.80.0.2, ...

    With `narrow_mtu` the bridge's port of the first node carries no larger packets, and tells nobody.
    """
    with make_netns() as switch:
        switch.ip("link", "add", "br0", "type", "bridge")
        for number, node in enumerate(nodes):
            switch.ip("link", "add", f"port{number}", "type", "veth", "peer", "name", netif, "netns", node.name)
            switch.ip("link", "set", f"port{number}", "master", "br0", "up")
            node.ip("addr", "add", f"10.80.0.{number + 1}/24", "dev", netif)
            node.ip("link", "set", netif, "up")
        switch.ip("link", "set", "br0", "up")
        if narrow_mtu:
            switch.ip("link", "set", "port0", "mtu", str(narrow_mtu))
            for number, node in enumerate(nodes):  # else segments are cut only at the end, whatever their way
                node.ip("link", "set", netif, "gso_max_size", "1514", "gso_max_segs", "1")
                switch.ip("link", "set", f"port{number}", "gso_max_size", "1514", "gso_max_segs", "1")
        yield


def node_address(number: int) -> str:
    """Return the address of a node that make_nodes made."""
    return f"10.79.0.{number + 1}"


@contextlib.contextmanager
def make_netns_with_dead_name_server() -> Iterator[Netns]:
    """Make a namespace with an interface and a name server whose address swallows every packet."""
    with make_netns(name_server=BLACKHOLE) as namespace:
        namespace.add_interface("eth0", "10.77.0.1/24")
        # A blackhole route would refuse at once (EINVAL); a neighbour that nobody is takes packets and stays silent.
        namespace.ip("neigh", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
        namespace.ip("route", "add", "default", "via", "10.77.0.2")
        yield namespace


def can_mount() -> bool:
    """Tell whether file systems can be mounted here."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


@contextlib.contextmanager
def mounted_tmpfs(path: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs with these options at `path`, which is made where it is not there; unmount it afterwards."""
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "preflight-test", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def remount_read_only(path: Path) -> None:
    """Make a mounted tmpfs read-only: as root, permission bits stop nobody."""
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)
