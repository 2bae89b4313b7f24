"""The page as text: whole, small, without a script, and with everything from outside as inert text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from preflight.model.facts import Gap
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Arrived, CopyBy, CopyResult, Direction, Ending, PairSpeed, PairTruth
from preflight.model.report import RunPhase, RunPhaseEnd
from preflight.show.html_chart import charts
from preflight.show.html_matrix import p2p_matrix, path_matrix
from preflight.show.html_report import render_html
from tests.reports import report_of
from tests.show import eight_gpus
from tests.show.outputs import every_report, hostile

ALL = every_report()
VOID = {"meta", "link", "br"}
TAGS = """html head meta title link style body a p header div span h1 h2 h3 ol ul li strong dl dt dd nav main section
    article table caption thead tbody tr th td code details summary footer svg rect path circle g text desc"""
OURS = frozenset(TAGS.split())
LARGEST_BYTES = 500_000


class Reader(HTMLParser):
    """Collects tags, attributes and text, and fails where an element is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("name", ALL)
def test_every_element_is_ours_and_closed_also_where_every_text_is_hostile(name: str) -> None:
    for report in (ALL[name], hostile(ALL[name])):
        reader = Reader(render_html(report))
        assert reader.tags <= OURS, reader.tags - OURS
        assert not [each for each in reader.attributes if each[1].startswith("on") or each[1] == "style"]
        links = {value for _, attribute, value in reader.attributes if attribute in ("href", "src", "xlink:href")}
        assert all(str(link).startswith("#") or link == "data:," for link in links), links


@pytest.mark.parametrize("name", ["healthy", "cured", "eight"])
def test_a_page_without_a_script_names_no_other_place(name: str) -> None:
    page = render_html(ALL[name])
    assert "<script" not in page
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import", page)


def test_the_policy_allows_the_page_s_own_styles_and_nothing_else() -> None:
    page = render_html(ALL["eight"])
    (css,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'" in page


def test_the_page_of_an_eight_gpu_node_is_small_and_the_same_every_time() -> None:
    page = render_html(ALL["eight"])
    assert len(page.encode()) < LARGEST_BYTES
    assert page == render_html(eight_gpus.healthy())


def test_verdict_and_reasons_stand_before_everything_else() -> None:
    text = " ".join("".join(Reader(render_html(ALL["blame gpu"])).words).split())
    verdict = text.index("NODE REJECTED node1")
    assert (
        verdict
        < text.index("the driver reports that the GPU needs a node reboot to recover")
        < text.index("Findings and fixes")
    )


def test_everything_that_the_issue_asks_for_is_on_the_page() -> None:
    text = " ".join("".join(Reader(render_html(ALL["cured"])).words).split())
    for words in (
        "Findings and fixes", "Fix: ", "export NCCL_P2P_DISABLE='1'", "the default settings hung",
        "3 trials: 1 hang, 1 ok", "rank 3 hung at the first collective", "Speed over message size",
        "expected from the",
        "Time of each rank", "rank 5", "1.80", "Paths between devices", "NUMA 1", "Peer access", "Facts",
        "NVIDIA L20", "Checks", "Time of the run", "start of the ranks", "84.6 s in all",
    ):  # fmt: skip
        assert words in text, words


def test_a_run_that_was_cut_short_says_at_the_top_which_part_is_missing() -> None:
    phases = (
        RunPhase("probe", RunPhaseEnd.COMPLETED, ""),
        RunPhase("trials", RunPhaseEnd.PARTIAL, "1 tried: stopped by SIGINT"),
    )
    text = "".join(Reader(render_html(report_of(phases=phases))).words)
    assert text.index("Not finished") < text.index("stopped by SIGINT") < text.index("Settings for the job")


def test_a_simulated_run_is_a_banner_above_all() -> None:
    assert render_html(ALL["simulated"]).index("SIMULATED:") < render_html(ALL["simulated"]).index("<h1")


def test_large_messages_are_drawn_by_busbw_and_small_ones_by_time_each_with_every_candidate() -> None:
    drawn = charts(ALL["eight"])
    assert [chart.title for chart in drawn] == [
        "all_reduce: busbw", "all_gather: busbw", "all_reduce: time below 1 MiB", "all_gather: time below 1 MiB"
    ]  # fmt: skip
    large, small = drawn[0], drawn[2]
    assert {*large.sizes} | {*small.sizes} == {*eight_gpus.SIZES} and max(small.sizes) < 1 << 20 <= min(large.sizes)
    assert [each.name for each in large.series] == ["default", "no-nvls", "no-p2p", "cumem-off"]
    assert large.svg.count("<circle") == 4 * len(large.sizes)
    assert "default · 1 GiB: 447 GB/s" in large.svg
    assert len(large.expected) == len(large.sizes) and small.expected == ()
    assert "the range expected from the links is" in large.summary and "takes" in small.summary


def test_the_axis_of_a_plot_is_linear_and_begins_at_0() -> None:
    labels = [float(each) for each in re.findall(r"<text[^>]*>([\d.]+)</text>", charts(ALL["eight"])[0].svg)]
    steps = {round(after - before, 6) for before, after in pairwise(sorted(labels))}
    assert min(labels) == 0.0 and len(steps) == 1


def test_no_line_is_drawn_through_two_points() -> None:
    report = ALL["eight"]
    sizes = eight_gpus.SIZES[-2:]
    trials = tuple(
        dataclasses.replace(trial, results=tuple(each for each in trial.results if each.size_bytes in sizes))
        for trial in report.trials
    )
    two, all_of_them = charts(dataclasses.replace(report, trials=trials, expected=()))[0], charts(report)[0]
    assert two.svg.count("<circle") == 8 and 'class="line' not in two.svg.partition("series")[2]
    assert 'class="line' in all_of_them.svg.partition("series")[2]


def test_a_matrix_of_equal_values_is_a_sentence() -> None:
    report = ALL["cured"]
    matrix = p2p_matrix(report, report.nodes[0])
    assert matrix is not None
    words = "Peer access between GPUs, between all 10 devices: the driver says ok; no copy was tested"
    assert matrix.sentence == words and words in render_html(report)
    paths = path_matrix(report.nodes[0])
    assert paths is not None and paths.sentence == ""


def test_the_gpus_that_were_chosen_are_marked_where_there_are_others() -> None:
    report = ALL["cured"]
    (node,) = report.nodes
    assert isinstance(node.gpus, tuple)
    some = tuple(gpu.uuid for gpu in node.gpus[6:9] if isinstance(gpu.uuid, str))
    page = render_html(dataclasses.replace(report, advice=dataclasses.replace(report.advice, gpus=some)))
    assert re.findall(r'class="[^"]*chosen">(GPU\d)<', page) == ["GPU6", "GPU7", "GPU8"] * 2
    assert "The 3 tested GPUs are underlined" in page
    assert 'chosen">' not in render_html(report)


def test_settings_and_the_failed_trial_stand_first_among_the_sections() -> None:
    page = render_html(ALL["cured"])
    places = [page.index(f'<section id="{name}"') for name in ("settings", "findings", "trials", "speed")]
    assert places == sorted(places)
    assert page.index("</span> trial-failed") < page.index("</span> straggler") < page.index("</span> gpu-set")


def test_where_nothing_works_what_is_wrong_stands_before_the_settings_that_there_are_not() -> None:
    page = render_html(ALL["blame gpu"])
    places = [page.index(f'<section id="{name}"') for name in ("findings", "settings", "trials")]
    assert places == sorted(places)
    assert page.count('<section id="settings"') == 1


@pytest.mark.parametrize("name", ALL)
def test_a_verdict_has_one_word(name: str) -> None:
    text = " ".join("".join(Reader(render_html(ALL[name])).words).split())
    assert "ready with env" not in text and "not_ready" not in text


def test_speeds_that_are_not_known_are_not_drawn() -> None:
    assert charts(report_of(trials=())) == ()
    assert "Speed over message size" not in render_html(ALL["unknown"])


def test_the_matrix_has_a_block_per_numa_node_and_the_nics_beside_the_gpus() -> None:
    matrix = path_matrix(eight_gpus.recorded_node())
    assert matrix is not None
    assert [(block.title, len(block.names)) for block in matrix.columns] == [
        ("NUMA 0", 4), ("NUMA 1", 4), ("NICs, NUMA 0", 4), ("NICs, NUMA 1", 5)
    ]  # fmt: skip
    assert [(row.block, row.span) for row in matrix.rows if row.span] == [("NUMA 0", 4), ("NUMA 1", 4)]
    first = [cell.text for cell in matrix.rows[0].cells]
    assert first == ["X", *["NV18"] * 7, "PIX", *["NODE"] * 3, *["SYS"] * 5]


def test_peer_access_that_was_tried_shows_driver_bytes_and_speed() -> None:
    report = eight_gpus.healthy()
    assert p2p_matrix(report, report.nodes[0]) is not None
    copy = CopyResult(CopyBy.SM, Direction.A_TO_B, 4096, Arrived.NEVER_WRITTEN, 1024, 1024)
    speeds = tuple(
        PairSpeed(CopyBy.COPY_ENGINE, direction, 1 << 26, gb_s, Gap("not timed"))
        for direction, gb_s in ((Direction.A_TO_B, 211.0), (Direction.B_TO_A, Gap("x")), (Direction.BOTH, 9.0))
    )
    right = PairTruth(0, 1, P2pStatus.OK, True, Ending.OK, "", (), (), 1, 0.1)
    wrong = dataclasses.replace(
        right, end=Ending.WRONG, problem="never written", copies=(copy,), speeds=speeds, repetition=0
    )
    matrix = p2p_matrix(dataclasses.replace(report, p2p=(wrong, right)), report.nodes[0])
    assert matrix is not None
    cell = matrix.rows[0].cells[1]
    assert (cell.text, cell.heat, cell.detail) == ("yes / no / 211", "bad", "never written")
    assert "bytes right" in matrix.caption


def test_a_node_of_which_little_is_known_is_shown_all_the_same() -> None:
    report = ALL["eight"]
    (node,) = report.nodes
    gap = Gap("not read")
    bare = dataclasses.replace(node, gpus=gap, gpu_paths=gap, gpu_p2p=gap, nics=gap, nic_paths=gap, netifs=gap)
    assert "are not known" in render_html(dataclasses.replace(report, nodes=(bare,)))


@pytest.mark.parametrize("module", ["pygal", "jinja2", "markupsafe"])
def test_the_page_s_libraries_load_for_a_page_only(module: str) -> None:
    script = (
        "import sys; from preflight import cli; import preflight.show.formats, preflight.show.junit; "
        f"sys.exit({module!r} in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
