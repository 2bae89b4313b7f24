"""`python -m preflight`, and where the `preflight` command begins."""

from __future__ import annotations

import gc
from typing import NoReturn

ALLOCATIONS_BETWEEN_COLLECTIONS = 100_000  # loading makes many objects and no garbage: looking for it takes 80 ms


def main() -> NoReturn:
    """Run the command line."""
    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)
    from preflight.cli import main as run  # noqa: PLC0415 - only now is it cheap to load

    run()


if __name__ == "__main__":
    main()
