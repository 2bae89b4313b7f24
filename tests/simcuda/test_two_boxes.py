"""docs/two-boxes.md, typed word for word on two boxes with a cable: namespaces, real NCCL, simulated GPUs and ports."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.netns import Netns, make_netns
from tests.simcuda.checking import QUICKLY
from tests.simcuda.machine import named
from tests.simcuda.places import PROJECT
from tests.simcuda.sandbox import Checked, Sandbox

PORTS = ("enp1s0f1np1", "enP2p1s0f1np1")
PAGE = (PROJECT / "docs/two-boxes.md").read_text()


def commands(after: str) -> list[str]:
    """Return the commands of the page that stand below a sentence with these words."""
    block = PAGE.partition(after)[2].lstrip("*. ,:abcdefghijklmnopqrstuvwxyz").split("\n\n    ", 1)[1]
    return re.findall(r"(?m)^    (\S.*)$", "    " + block.split("\n\n", 1)[0])


@contextlib.contextmanager
def two_boxes() -> Iterator[list[Netns]]:
    """Make two boxes with two ports each, that are connected and have no address."""
    with make_netns() as first, make_netns() as second:
        for port in PORTS:
            first.ip("link", "add", port, "type", "veth", "peer", "name", port, "netns", second.name)
        yield [first, second]


def typed(box: Netns, lines: list[str]) -> None:
    for line in lines:
        subprocess.run([*box.prefix, "sh", "-c", line], check=True, capture_output=True, text=True, timeout=60)


def test_the_page_says_what_to_type_on_which_box() -> None:
    assert [line.split()[0] for line in commands("On the first box, as root:")] == ["ip"] * 4
    assert len(commands("On the second box, as root:")) == 4
    assert [line.split()[0] for line in commands("large packets:")] == ["ping", "ping"]
    assert [line.split()[:2] for line in commands("within one minute:")] == [["preflight", "check"]]
    assert all(" --node-rank 0 " in line for line in commands("environment, on the first box:"))


@pytest.mark.simcuda
@pytest.mark.usefixtures("simcuda_torch")
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2")
def test_whoever_types_the_page_gets_two_boxes_that_are_ready(tmp_path: Path) -> None:
    checks = [commands("environment, on the first box:"), commands("within one minute:")]
    with two_boxes() as boxes, contextlib.ExitStack() as running:
        typed(boxes[0], commands("On the first box, as root:"))
        typed(boxes[1], commands("On the second box, as root:"))
        if shutil.which("ping"):
            typed(boxes[0], commands("large packets:"))
        since, started = time.monotonic(), []
        machine = named("pcie4-roce")
        for number, (box, (line,)) in enumerate(zip(boxes, checks, strict=True)):
            own = {**machine.settings, "NODE": str(number), "FABRIC": str(tmp_path / "fabric")}
            place = tmp_path / f"box{number}"
            place.mkdir()
            netifs = [
                {"name": port, "kind": "physical", "is_up": True, "has_carrier": True, "mtu": 9000,
                 "addresses": [f"192.168.{100 + i}.{number + 1}"]}
                for i, port in enumerate(PORTS)
            ]  # fmt: skip
            here = replace(machine, settings=own, node={**machine.node, "netifs": netifs})
            sandbox = Sandbox(here, place, prefix=box.named(f"box{number}"))
            # One GPU a box, as two of them have; and what two cores that play it need.
            words = [*shlex.split(line)[1:], "--gpus", "0", "--backend", "nccl", "--sizes", "1M", *QUICKLY]
            started.append((sandbox, running.enter_context(sandbox.started(*words))))
        ran: list[Checked] = [sandbox.finish(process, since, 800) for sandbox, process in started]
    for each in ran:
        assert (each.code, each.report["verdict"]) == (0, "ready"), each
        assert not each.report["advice"]["env"], each
    assert "NET/IB/0" in " ".join(ran[0].trial("default")["transport"]), ran[0]
    assert os.path.exists(ran[1].place / "cwd/preflight.env")
