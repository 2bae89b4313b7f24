"""Run one study, or all of them; exit 1 if a promise was broken."""

from __future__ import annotations

import sys
from importlib import import_module

STUDIES = ("baselines", "cures", "fleets", "memory", "patterns", "timeouts")


def main(arguments: list[str]) -> int:
    """Print what the named studies found; all of them if none is named."""
    is_small = "--small" in arguments
    holds = True
    for name in [each for each in arguments if each in STUDIES] or STUDIES:
        sys.stdout.write(f"{name}\n")
        for line, is_kept in import_module(f"scripts.studies.{name}").study(is_small):
            sys.stdout.write(f"  {'' if is_kept else 'BROKEN '}{line}\n")
            sys.stdout.flush()
            holds &= is_kept
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
