"""Reports below files and directories, one after the other: ten thousand must not lie in memory together."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence

from preflight.errors import UsageError
from preflight.model.input_limits import REPORT, parse_json
from preflight.system.inputs import as_text, read_bytes


def report_paths(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the named files and every *.json below the named directories; UsageError where there is no such thing."""
    for argument in arguments:
        if os.path.isdir(argument):
            for folder, folders, files in os.walk(argument):
                folders.sort()
                yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".json"))
        elif os.path.exists(argument):
            yield argument
        else:
            raise UsageError(f"{argument}: there is no such file or directory")


def read_reports(paths: Iterator[str]) -> Iterator[tuple[str, object, str]]:
    """Yield (path, document, problem): what can't be read is a problem in words, never an exception."""
    for number, path in enumerate(paths):
        document, problem = _read(path)
        yield path, document, problem
        if number % 64 == 0:
            gc.collect(0)  # a document's lists and dicts are many and short-lived


def _read(path: str) -> tuple[object, str]:
    if not os.path.isfile(path):
        return None, "no regular file"
    try:
        data = read_bytes(path, REPORT)
        return (parse_json(as_text(data), REPORT, path), "") if data else (None, "empty")
    except UsageError as error:
        return None, str(error).removeprefix(f"{path}: ").replace("not JSON", "no JSON", 1)
