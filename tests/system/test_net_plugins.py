"""Which network plugin NCCL would load: its name from NCCL_NET_PLUGIN, its place as the loader finds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.system.net_plugins import net_plugins


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Make two folders with plugins, and a loader's cache that names a third and a file that is gone."""
    for path in ("first/libnccl-net.so", "second/libnccl-net.so", "second/libnccl-net-ofi.so", "cached/libmine.so"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    names = ("cached/libmine.so", "gone/libnccl-net-old.so")
    paths = b"".join(f"{Path(name).name}\0{tmp_path}/{name}\0".encode() for name in names)
    (tmp_path / "ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\1\0\0" + paths)
    return tmp_path


@pytest.mark.parametrize(
    ("plugin", "found"),
    [
        ("libnccl-net.so", ["first/libnccl-net.so"]),
        ("ofi", ["second/libnccl-net-ofi.so"]),
        ("libnccl-net-ofi.so", ["second/libnccl-net-ofi.so"]),
        ("libmine.so", ["cached/libmine.so"]),
        ("old", []),
        ("none", []),
        ("ofi, libmine.so,none", ["second/libnccl-net-ofi.so", "cached/libmine.so"]),
    ],
)
def test_the_plugin_that_nccl_asks_for_is_found_where_the_loader_looks(
    folders: Path, plugin: str, found: list[str]
) -> None:
    path = {"LD_LIBRARY_PATH": f"{folders}/missing::{folders}/first:{folders}/second"}
    environ = path | {"NCCL_NET_PLUGIN": plugin}
    assert net_plugins(path, f"{folders}/ld.so.cache") == [f"{folders}/first/libnccl-net.so"]
    assert net_plugins(path | {"NCCL_NET_PLUGIN": " ,"}, f"{folders}/ld.so.cache") is None
    assert net_plugins(environ, f"{folders}/ld.so.cache") == [f"{folders}/{each}" for each in found]


def test_a_path_is_taken_as_it_is_and_a_cache_that_cannot_be_read_has_none(folders: Path) -> None:
    path = f"{folders}/cached/libmine.so"
    assert net_plugins({"NCCL_NET_PLUGIN": path}, f"{folders}/no-cache") == [path]
    assert net_plugins({"NCCL_NET_PLUGIN": f"{folders}/no.so"}, f"{folders}/no-cache") == []


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_value_is_read(plugin: str, path: str) -> None:
    found = net_plugins({"NCCL_NET_PLUGIN": plugin, "LD_LIBRARY_PATH": path}, "/dev/null")
    assert found is None or all(os.path.isfile(each) for each in found)
