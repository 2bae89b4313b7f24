from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from preflight.model.fit import Batch, Fit, FitVerdict, Headroom, ModelShape
from preflight.model.gap import Gap
from preflight.model.job import Job, ParamCount, Strategy
from preflight.show.console_writer import lines_of
from preflight.show.fit import fit_section
from preflight.show.text import Style, width_of
from preflight.timeout.memory import will_it_fit

GIB = 1 << 30
SEVEN_B = ParamCount(7 * 10**9, 7 * 10**9)
ROOM = Headroom(8, 24 * GIB, "free on GPU 6, the fullest", 200 * GIB, "MemAvailable")
BATCH = Batch(ModelShape(4096, 32, 11008, 32000), 4096, 2)
SHARDED = Job(SEVEN_B, strategy=Strategy.ZERO3, world_size=8)


def page(fit: Fit, width: int = 80) -> str:
    return "\n".join(lines_of(fit_section(fit), Style(width=width))) + "\n"


def test_a_refusal_says_how_much_is_certain_and_what_would_be_smaller() -> None:
    text = page(will_it_fit(Job(SEVEN_B, world_size=8), ROOM))
    assert "\n  cannot fit: even the lower bound exceeds the available memory, unless the job\n  offloads, " in text
    assert "  at least                         39.1 GiB  cannot fit\n" in text
    assert "smaller: fsdp or zero3" in text


def test_a_bound_that_does_not_refuse_says_that_it_promises_nothing() -> None:
    text = page(will_it_fit(SHARDED, ROOM))
    assert "may fit: the lower bound fits, but the job may need more" in text
    assert "estimate with checkpointing" not in text


def test_what_fits_only_in_pure_16_bit_is_called_that_with_what_it_must_go_without() -> None:
    text = page(will_it_fit(Job(SEVEN_B, world_size=8), replace(ROOM, gpu_free_bytes=80 * GIB)))
    assert "\n  fits only in pure 16-bit: the job needs more memory than there is, unless it\n  does without: " in text
    assert "fp32 copy of the weights, optimizer states in fp32, gradients" in text


def test_estimates_are_marked_and_what_exceeds_the_room_is_said() -> None:
    text = page(will_it_fit(SHARDED, ROOM, BATCH))
    assert "estimate: 2 x 4096 tokens" in text
    (line,) = (line for line in text.splitlines() if line.startswith("  estimate without "))
    assert line.endswith("  more than there is")


def test_a_room_that_is_not_known_is_said_with_its_reason() -> None:
    text = page(will_it_fit(SHARDED, replace(ROOM, gpu_free_bytes=Gap("libnvidia-ml.so.1 was not found"))))
    assert "unknown: the need is known, but the available memory is not" in text
    assert "libnvidia-ml.so.1 was not found" in text
    assert "may fit" not in text


def test_a_save_that_takes_no_more_than_training_is_not_told_twice() -> None:
    assert "while saving" not in page(will_it_fit(Job(SEVEN_B), ROOM))


def test_without_a_size_it_asks_for_one() -> None:
    assert "say how many parameters" in page(Fit(FitVerdict.UNKNOWN, ()))


@given(
    st.integers(1000, 10**14), st.sampled_from(Strategy), st.integers(40, 120), st.none() | st.just(BATCH), st.text()
)
def test_no_line_is_wider_than_the_terminal(
    count: int, strategy: Strategy, width: int, batch: Batch | None, reason: str
) -> None:
    job = Job(ParamCount(count, count), strategy=strategy, world_size=8)
    for headroom in (ROOM, replace(ROOM, gpu_free_bytes=Gap(reason))):
        assert all(width_of(line) <= width for line in page(will_it_fit(job, headroom, batch), width).splitlines())
