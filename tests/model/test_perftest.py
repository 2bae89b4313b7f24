"""The output of ib_write_bw and its relatives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.model.perftest import LinkTest, parse_perftest

LINE = "-" * 87


def output(device: str, *rows: str, title: str = "RDMA_Write BW Test", unit: str = "Gb") -> str:
    """Return what one run of perftest prints."""
    return f"""{LINE}
                    {title}
 Dual-port       : OFF\t\tDevice         : {device}
 Number of qps   : 4\t\tTransport type : IB
 Mtu             : 4096[B]
 Link type       : IB
{LINE}
 local address: LID 0x06 QPN 0x0d02 PSN 0xc8533e OUT 0x10 RKey 0x080585 VAddr 0x007f41cb03a000
{LINE}
 #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]
{chr(10).join(rows)}
{LINE}
"""


def test_the_largest_size_of_each_run_counts() -> None:
    text = output("mlx5_0", " 65536      5000             388.41             387.92\t\t   0.739",
                  " 8388608    5000             0.00               394.61             0.005880")  # fmt: skip
    text += output("mlx5_bond_0", " 65536 5000 97.00 96.50 0.1", title="RDMA_Read Bidirectional BW Test")
    assert parse_perftest(text, "f") == (
        LinkTest("mlx5_0", 1, 8388608, 394.61, False),
        LinkTest("mlx5_bond_0", 1, 65536, 96.5, True, "ib_read_bw"),
    )


def test_megabytes_are_those_of_perftest() -> None:
    (found,) = parse_perftest(output("mlx5_0", " 65536      1000     0.00     11728.47     0.187655", unit="MB"), "f")
    assert found.gbit_s == pytest.approx(98.4, abs=0.1)


def test_the_port_is_the_one_of_the_command() -> None:
    command = "$ ib_write_bw -d mlx5_0 -i 2 -q 4 --report_gbits 10.0.0.2\n"
    (found,) = parse_perftest(command + output("mlx5_0", " 65536 5000 97.00 96.50 0.1"), "f")
    assert found.port == 2
    again = "$ ib_write_bw -d mlx5_1 10.0.0.2\n" + output("mlx5_1", " 65536 5000 97.00 96.50 0.1")
    both = parse_perftest(command + output("mlx5_0", " 65536 5000 97 96 0.1") + again, "f")
    assert [test.port for test in both] == [2, 1]


def test_each_test_has_its_program_and_a_command_is_of_one_test() -> None:
    command = "$ ib_read_bw -d mlx5_0 -i 2 10.0.0.2\n"
    one = output("mlx5_0", " 65536 5000 97.00 96.50 0.1", title="RDMA_Read BW Test")
    other = output("mlx5_1", " 65536 5000 97.00 96.50 0.1", title="Send BW Test")
    found = parse_perftest(command + one + other, "f")
    assert [(test.program, test.port) for test in found] == [("ib_read_bw", 2), ("ib_send_bw", 1)]


def test_immediate_writes_and_a_command_with_a_variable_are_read() -> None:
    row = " 65536 5000 392.10 392.10 0.1"
    text = "for d in mlx5_0 mlx5_1; do ib_write_bw -d $d -i 2 --write_with_imm host; done\n"
    text += output("mlx5_0", row, title="RDMA_Write_imm Bidirectional BW Test")
    text += output("mlx5_1", row, title="RDMA_Write_imm BW Test")
    found = parse_perftest(text, "f")
    assert [(test.port, test.is_bidirectional) for test in found] == [(2, True), (2, False)]


def test_a_device_without_a_result_is_kept_as_that() -> None:
    failed = output("mlx5_1", " Completion with error at client", " Failed status 12: wr_id 0 syndrom 0x81")
    found = parse_perftest(output("mlx5_0", " 65536 5000 97.00 96.50 0.1") + failed, "f")
    assert [(test.device, test.size_bytes) for test in found] == [("mlx5_0", 65536), ("mlx5_1", 0)]


def test_a_table_with_other_columns_is_not_read() -> None:
    """As with a service level: the peak would be taken for the average."""
    text = output("mlx5_0", " 65536  0  5000  392.00  391.9  0.1").replace("#iterations", "#sl  #iterations")
    with pytest.raises(MalformedInput):
        parse_perftest(text, "f")


def test_a_warning_between_the_header_and_the_row_is_passed_over() -> None:
    rows = ("Conflicting CPU frequency values detected: 1500.0 != 3300.0. CPU Frequency is not max.",
            " 65536      560845           0.00               98.02                0.186950")  # fmt: skip
    assert parse_perftest(output("mlx5_0", *rows), "f")[0].gbit_s == 98.02


@pytest.mark.parametrize("text", ["", "no perftest here", output("mlx5_0"), " 65536 5000 97.00 96.50 0.1"])
def test_a_file_without_a_result_is_refused_by_name(text: str) -> None:
    with pytest.raises(MalformedInput, match=r"links\.txt: no result of ib_write_bw"):
        parse_perftest(text, "links.txt")


@given(st.text(max_size=300), st.text(alphabet=" 0123456789.-:#bytesBWaverage[Gb/sec]Device\n", max_size=300))
def test_any_text_is_read_or_refused(one: str, other: str) -> None:
    for text in (one, other, output(one, other), output("mlx5_0", one)):
        try:
            found = parse_perftest(text, "f")
        except MalformedInput:
            continue
        assert all(test.gbit_s >= 0 and test.device for test in found)
