"""What the records of a trial answer about themselves."""

from __future__ import annotations

from preflight.model.trial import DEFAULT, Control, Outcome, Rerun


def rerun(control: str, outcome: Outcome = Outcome.OK) -> Rerun:
    return Rerun(DEFAULT, (), outcome, "", 1.0, control=control)


def test_the_turns_of_a_control_are_its_own_and_whole() -> None:
    own, failed = rerun("a"), rerun("a", Outcome.HANG)
    control = Control(reruns=(own, rerun("b"), rerun("a", Outcome.SKIPPED), failed, rerun("")))
    assert control.turns("a") == (own, failed)
