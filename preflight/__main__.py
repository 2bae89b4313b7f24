"""`python -m preflight`, and where the `preflight` command begins."""

from __future__ import annotations

import gc

ALLOCATIONS_BETWEEN_COLLECTIONS = 100_000  # loading makes many objects and no garbage: looking for it takes 80 ms
gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)  # before anything large is loaded

from preflight.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
