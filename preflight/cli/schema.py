"""`preflight schema`: the shape of a report, for programs that read it."""

from __future__ import annotations

from preflight.cli.program import app
from preflight.system.streams import to_stdout


@app.command()
def schema() -> None:
    """Print the JSON Schema (2020-12) of the report that `preflight check` writes."""
    import json  # noqa: PLC0415

    from preflight.model.schema import report_schema  # noqa: PLC0415

    to_stdout(json.dumps(report_schema(), indent=2) + "\n")
