"""Nothing in a GPU report names the site: canaries of each kind are planted, and none is found again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.gpu_report.privacy import Privacy

ENVIRON = {
    "USER": "mmustermann",
    "HOSTNAME": "gpu-a12.lab.example",
    "SLURM_JOB_NAME": "secret-llm-70b",
    "SLURM_JOB_ACCOUNT": "proj-hydra",
    "SLURM_JOB_NODELIST": "rack7n[01-04]",
    "POD_NAME": "trainer-7f9c-worker-3",
    "AWS_INSTANCE_ID": "i-0abc123def4567890",
    "HF_TOKEN": "hf_canarycanarycanary",
    "PATH": "/usr/bin",
}
# What is planted, and the line in which it stands.
CANARIES = {
    "host": ("gpu-a12", "gpu-a12:4242:4243 [0] NCCL INFO Bootstrap : Using eth0"),
    "full host": ("gpu-a12.lab.example", "node gpu-a12.lab.example answered"),
    "user": ("mmustermann", "/scratch/mmustermann/venv/bin/python"),
    "home": ("/data/home/mm", "File /data/home/mm/train.py"),
    "account": ("proj-hydra", "account=proj-hydra"),
    "job": ("secret-llm-70b", "job secret-llm-70b of 8 ranks"),
    "pod": ("trainer-7f9c-worker-3", "pod trainer-7f9c-worker-3 was evicted"),
    "instance": ("i-0abc123def4567890", "instance i-0abc123def4567890"),
    "token": ("hf_canarycanarycanary", "HF_TOKEN=hf_canarycanarycanary"),
    "uuid": ("5eed4a11-8c3d-0123-4567-89abcdef0123", "GPU 0: GPU-5eed4a11-8c3d-0123-4567-89abcdef0123"),
    "serial": ("1654922013427", "    Serial Number                         : 1654922013427"),
    "board": ("0x2c00", "    Board ID                              : 0x2c00"),
    "vbios": ("96.00.89.00.01", "    VBIOS Version                         : 96.00.89.00.01"),
    "mac": ("b8:59:9f:a1:b2:c3", "eth0: link/ether b8:59:9f:a1:b2:c3"),
    "ipv4": ("10.42.7.19", "NET/Socket : Using [0]eth0:10.42.7.19<0>"),
    "gid": ("fe80:0000:0000:0000:b859:9f03:0012:a1b2", "gid fe80:0000:0000:0000:b859:9f03:0012:a1b2"),
    "guid": ("b859:9f03:0012:a1b2", "node_guid: b859:9f03:0012:a1b2"),
    "hex guid": ("0xb8599f030012a1b2", "port guid 0xb8599f030012a1b2"),
    "process": (
        "/opt/other/user/train_secret.py",
        "      Name          : /opt/other/user/train_secret.py",
    ),
    "pid": ("31337", "        Process ID                        : 31337"),
    "host in a name": ("gpu-a12", "nccl/3.gpu-a12.98.log"),
    "xid's process": ("python_secret", "NVRM: Xid (PCI:0000:18:00): 45, pid=4242, name=python_secret, Ch 00000010"),
    "other process": ("other_user_job", '{"processes": [{"pid": 7, "name": "other_user_job"}]}'),
    "key": ("SN-99812", json.dumps({"serial": "SN-99812"})),
}


def privacy() -> Privacy:
    return Privacy(["gpu-a12.lab.example"], "/data/home/mm", ENVIRON)


@pytest.mark.parametrize("kind", CANARIES)
def test_a_planted_canary_is_removed(kind: str) -> None:
    canary, line = CANARIES[kind]
    assert canary in line
    assert canary not in privacy().text(f"before\n{line}\nafter\n")


def test_what_a_maintainer_needs_stays() -> None:
    text = (
        "    Product Name                          : NVIDIA H100 80GB HBM3\n    Driver Version : 580.95.05\n"
        "NCCL version 2.27.5+cuda12.9\n[0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        '{"call": "nvmlDeviceGetName[0]", "code": 0, "ms": 0.012}\n0000:18:00.0 mlx5_0:1 root\n'
    )
    assert privacy().text(text) == text


@given(st.text())
def test_any_text_is_scrubbed_without_an_error(text: str) -> None:
    assert isinstance(privacy().text(text), str)
