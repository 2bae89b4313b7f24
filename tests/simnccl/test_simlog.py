"""Preflight's own reader reads the lines of the simulated NCCL as what was chosen, version by version."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from preflight.model.nccl_log import NcclLog, read_nccl_log
from preflight.model.transport import Transport
from tests.simnccl import simlog
from tests.simnccl.machines import facts
from tests.simnccl.rules import parse
from tests.simnccl.simmachine import Wiring, wire
from tests.simnccl.simpaths import Failure, Version

VERSIONS = [(2, 18, 1), (2, 19, 3), (2, 21, 5), (2, 23, 4), (2, 26, 2), (2, 27, 5), (2, 28, 9), (2, 30, 7)]
STAMP = "2026-11-21 22:00:00"


def lines(wiring: Wiring, gpus: tuple[int, ...], version: Version) -> Iterator[str]:
    yield simlog.version_line(version)
    for rank in range(len(gpus)):
        write = simlog.Writer("host-1", 4711 + rank, rank, version, STAMP)
        seat = simlog.Seat(rank, len(gpus), gpus, "0000:7b:00.0")
        yield simlog.bootstrap(write, wiring)
        yield from simlog.network(write, wiring, ib_was_off=False)
        yield from simlog.start(write, seat, wiring)
        yield from simlog.complete(write, seat, wiring)
        yield from simlog.connections(write, seat, wiring)


def read(name: str, gpus: tuple[int, ...], version: Version, **env: str) -> tuple[Wiring, NcclLog, str]:
    wiring = wire(facts(name, *gpus), env, version)
    written = list(lines(wiring, gpus, version))
    return wiring, read_nccl_log(written), "\n".join(written)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("env", [{}, {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, {"NCCL_IB_DISABLE": "1"}])
def test_every_pair_the_network_and_the_interface_are_read_back(version: Version, env: dict[str, str]) -> None:
    wiring, log, text = read("l20x10_ens34", (6, 7, 8, 9), version, **env)
    said = {path.ranks: path.transport for path in log.paths}
    assert said == {pair: Transport(link.transport) for pair, link in wiring.links.items()}
    assert log.networks == (wiring.network,)
    assert log.bootstrap == ("eno1",)
    assert [card.name for card in log.cards] == [card.name for card in wiring.cards]
    assert re.findall(r"n[Rr]anks (\d+).* Init COMPLETE", text) == ["4"] * 4
    assert re.findall(r"NCCL version ([\d.]+)", text)[0] == ".".join(map(str, version))


def test_nvlink_sharp_and_denied_pairs_are_read_back() -> None:
    assert read("h100x8", (0, 1, 2, 3), (2, 21, 5))[1].has_nvls
    assert not read("h100x8", (0, 1, 2, 3), (2, 27, 5))[1].has_nvls, "since 2.22 the first use makes it"
    _, off, text = read("h100x8", (0, 1, 2, 3), (2, 27, 5), NCCL_NVLS_ENABLE="0")
    assert not off.has_nvls
    assert set(re.findall(r"NVLS multicast support is (not )?available", text)) == {"not "}
    disabled = r"P2P is disabled between (?:NVLINK )?connected GPUs (\d+) and (\d+)"
    assert set(re.findall(disabled, read("rtx4090x2", (0, 1), (2, 27, 5))[2])) == {("0", "1")}


def test_nvls_that_cannot_bind_ends_the_start_but_for_2_27_3_to_2_28() -> None:
    rule = parse("error:via=NVLS")[0]
    wiring = wire(facts("h100x8", 0, 1, 2, 3), {}, (2, 27, 5))
    survivors = [version for version in VERSIONS if simlog.survives(rule, version)]
    assert survivors == [(2, 27, 5), (2, 28, 9)]
    assert simlog.failure_of(rule, wiring, (2, 21, 5)).text.startswith("Cuda failure 401")
    write = simlog.Writer("host-1", 1, 0, (2, 27, 5), STAMP)
    assert "Proceeding without NVLS support" in simlog.proceeding(write)


@pytest.mark.parametrize("version", [(2, 22, 3), (2, 24, 3), (2, 30, 7)])
def test_the_algorithm_is_read_back_where_the_version_tells_it(version: Version) -> None:
    wiring = wire(facts("l20x10_ens34", 6, 7, 8, 9), {}, version)
    write = simlog.Writer("host-1", 4711, 0, version, STAMP)
    (algorithm,) = read_nccl_log([simlog.algorithm(write, "AllReduce", 1 << 25, wiring)]).algorithms
    assert (algorithm.algorithm, algorithm.protocol, algorithm.size_bytes) == ("RING", "SIMPLE", 1 << 25)


@pytest.mark.parametrize(
    ("version", "form"),
    [
        ((2, 21, 5), r"\nhost-1:1:1 \[0\] misc/x.cc:7 NCCL WARN it broke\n"),
        ((2, 27, 5), r"\n\[2026-11-21 22:00:00\] host-1:1:1 \[0\] misc/x.cc:7 NCCL WARN it broke\n"),
        ((2, 30, 7), r"\n\[2026-11-21 22:00:00\] host-1:1:1 \[0\] misc/x.cc:7 \(\w+\) NCCL WARN it broke\n"),
    ],
)
def test_a_warning_has_its_versions_form(version: Version, form: str) -> None:
    write = simlog.Writer("host-1", 1, 0, version, STAMP)
    assert re.fullmatch(form, write.warn(Failure("misc/x.cc:7", "it broke", 2)))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("error:net=IB", "ibv_modify_qp failed"), ("error:hca=mlx5_0", "mlx5_0:1"), ("error:via=NVLS", "NVLink SHARP"),
        ("error:via=SHM", "Error while creating shared memory segment"), ("error:netif=eno1", "198.18.0.1"),
        ("error:via=SHM/CUMEM", "operation not permitted"), ("error:via=P2P", "peer access"), ("error", "told to fail"),
    ],
)  # fmt: skip
def test_an_error_has_the_words_of_what_it_is_about(rule: str, words: str) -> None:
    wiring = wire(facts("l20x10_ens34", 6, 7, 8, 9), {}, (2, 27, 5))
    failure = simlog.failure_of(parse(rule)[0], wiring, (2, 30, 7))
    assert words in failure.text
    assert simlog.torch_message(failure, (2, 27, 5)).endswith(failure.text)
