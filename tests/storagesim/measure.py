"""Measure a directory in a process of its own, as the command does: `measure.py DIRECTORY WRITERS BUDGET_S [UID]`."""

from __future__ import annotations

import json
import os
import sys

from preflight.errors import PreflightError, Stopped
from preflight.facts.storage import measure_storage
from preflight.model.codec import encode_value
from preflight.system.signals import raise_on_signals


def main() -> int:
    directory, writers, budget_s, *uid = sys.argv[1:]
    if uid:
        os.setuid(int(uid[0]))
    raise_on_signals()
    try:
        speed = measure_storage(directory, int(writers), float(budget_s), lambda share: print(share, flush=True))  # noqa: T201
    except (PreflightError, Stopped) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    print(json.dumps(encode_value(speed)))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
