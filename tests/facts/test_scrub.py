from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.facts.scrub import Scrubber

SECRETS = {
    "a MAC address": "3c:ec:ef:12:34:56",
    "a MAC address with dashes": "3C-EC-EF-12-34-56",
    "an interface named by its MAC address": "enx3cecef123456",
    "an IPoIB hardware address": "20:00:11:07:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:12:34:56",
    "an IPv4 address": "10.20.30.40",
    "a global IPv6 address": "2a01:4f8:1:2::5",
    "a link-local IPv6 address": "fe80::3eec:efff:fe12:3456",
    "a GUID": "b859:9f03:0012:3456",
    "a GID": "fe80:0000:0000:0000:b859:9f03:0012:3456",
    "a GID with an IPv4 address": "0000:0000:0000:0000:0000:ffff:0a14:1e28",
    "a GPU's UUID": "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
    "a pod's id": "0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9",
    "a container's id": "4bf92f3577b34da6a3ce929d0e0e47364bf92f3577b34da6a3ce929d0e0e4736",
    "the host's name": "gpu-node-17",
    "the host's full name": "gpu-node-17.cluster.example.org",
    "the home directory": "/home/alice",
}
KEPT = (
    "0000:1b:00.0", "pci0000:16", "127.0.0.1", "::1", "0.0.0.0", "580.95.05", "2.28.9", "6.1.0-18-amd64",
    "0::/system.slice",    "0000:0000:0000:0000:0000:0000:0000:0000", "400 Gb/sec (4X NDR)", "0-31,64-95",
    "12:34:56", "00000000,0000ff00",
    "mlx5_bond_0", "0x1003", "fe80:0000:0000:0000:0000:0000:0000:0000", "/home/alicent", "my-gpu-node-170",
)  # fmt: skip


def _scrubber() -> Scrubber:
    return Scrubber(hosts=("gpu-node-17.cluster.example.org", "gpu-node-17"), home="/home/alice")


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("frame", ["{}", "a {} b", "key={}\n", "path/{}/x", '"{}"', "[{}]"])
def test_what_names_a_machine_does_not_stay(secret: str, frame: str) -> None:
    scrubbed = _scrubber().text(frame.format(secret))
    assert secret.removeprefix("GPU-") not in scrubbed
    assert "3cecef" not in scrubbed.replace(":", "").replace("-", "").lower()


@pytest.mark.parametrize("text", KEPT)
def test_what_names_none_stays(text: str) -> None:
    assert _scrubber().text(text) == text


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_the_same_value_becomes_the_same_and_keeps_its_shape(secret: str) -> None:
    scrubber = _scrubber()
    first = scrubber.text(secret)
    assert scrubber.text(f"x {secret} y") == f"x {first} y"
    if ":" in secret:
        assert re.sub("[0-9a-fA-F]", "0", first).count(":") >= 2


def test_different_values_stay_different() -> None:
    scrubber = _scrubber()
    found = {scrubber.text(f"10.0.{i}.{j}") for i in range(20) for j in range(20)}
    assert len(found) == 400


def test_an_address_and_the_gid_that_holds_it_stay_together() -> None:
    scrubber = _scrubber()
    octets = [int(part) for part in scrubber.text("10.20.30.40").split(".")]
    gid = scrubber.text("0000:0000:0000:0000:0000:ffff:0a14:1e28")
    assert gid.endswith(":ffff:" + f"{octets[0]:02x}{octets[1]:02x}:{octets[2]:02x}{octets[3]:02x}")


def test_a_ports_guid_and_its_gid_stay_together() -> None:
    scrubber = _scrubber()
    assert scrubber.text("fe80:0000:0000:0000:b859:9f03:0012:3456").endswith(scrubber.text("b859:9f03:0012:3456"))


def test_keys_that_name_somebody_are_replaced_whatever_they_hold() -> None:
    scrubber = _scrubber()
    scrubbed = scrubber.value(
        {"user": "alice", "serial": "1654922", "name": "NVIDIA H100", "also": [{"user": "alice"}]}
    )
    assert scrubbed == {"user": "user-1", "serial": "serial-1", "name": "NVIDIA H100", "also": [{"user": "user-1"}]}


def test_another_hosts_name_in_a_variable_that_holds_one_is_replaced() -> None:
    assert _scrubber().value({"NCCL_COMM_ID": "login3:4242"}) == {"NCCL_COMM_ID": "host-1:4242"}


@given(st.text(alphabet="0123456789abcdef:.-/ gpunode", max_size=120))
def test_scrubbing_never_fails_and_keeps_lines(text: str) -> None:
    assert _scrubber().text(text).count("\n") == text.count("\n")
