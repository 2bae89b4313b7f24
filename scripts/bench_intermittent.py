"""Count the false cures of faults that come and go: simulated machines, the real search and its closing control.

Prints a table of rhythms by profile and exits 1 where more were cured than the bound that preflight prints allows for,
by three standard deviations.
"""

from __future__ import annotations

import sys

from preflight.model.profile import Profile
from preflight.model.trial import odds
from tests.search.flapping import RHYTHMS, is_false_cure, simulate

RUNS = 286  # by rhythm and profile: 2,000 by profile


def main() -> int:
    """Print the table and return the exit code."""
    say(f"False cures of faults that come and go, {RUNS} simulated runs by rhythm and profile")
    say(f"{'rhythm':<18}" + "".join(f"{profile.value:>12}" for profile in Profile))
    is_true = True
    for name, rhythm in [*RHYTHMS.items(), ("first trial only", lambda _, __: False)]:
        counts = [sum(is_false_cure(simulate(rhythm, each, seed)) for seed in range(RUNS)) for each in Profile]
        say(f"{name:<18}" + "".join(f"{count:>12}" for count in counts))
        is_true &= all(count <= most(profile) for profile, count in zip(Profile, counts, strict=True))
    bounds = [f"1 of {odds(each.effort.runs_each, each.effort.runs_each)}" for each in Profile]
    say(f"{'promised at most':<18}" + "".join(f"{bound:>12}" for bound in bounds))
    return 0 if is_true else 1


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def most(profile: Profile) -> float:
    """Return how many false cures may be counted."""
    bound = 1 / odds(profile.effort.runs_each, profile.effort.runs_each)
    return RUNS * bound + 3 * (RUNS * bound * (1 - bound)) ** 0.5


if __name__ == "__main__":
    sys.exit(main())
