"""How much `preflight check` prints: one screen, everything with -v, the verdict with -q."""

from __future__ import annotations

import pytest

from tests.command import Command

pytestmark = pytest.mark.heavy(6)

PLAIN = {"PREFLIGHT_VERBOSE": ""}


@pytest.mark.parametrize(
    ("options", "env", "most_lines", "has_trials"),
    [
        ((), PLAIN, 24, False),
        (("-v",), PLAIN, 200, True),
        ((), {"PREFLIGHT_VERBOSE": "1"}, 200, True),
        (("-q",), PLAIN, 1, False),
        (("-q",), {"PREFLIGHT_VERBOSE": "1"}, 1, False),
    ],
)
def test_as_much_is_printed_as_was_asked_for(
    command: Command, options: tuple[str, ...], env: dict[str, str], most_lines: int, has_trials: bool
) -> None:
    ran = command.run("check", "--backend", "gloo", *options, env=env)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert "READY" in ran.stdout
    assert len(ran.stdout.splitlines()) <= most_lines
    assert ("\nTrials" in ran.stdout) is has_trials
    assert ("Next     start the job" in ran.stdout) is (env == PLAIN and not options)
    assert ran.stderr == ""
