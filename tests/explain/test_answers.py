"""The whole answer to many logs, not only the cause: tests/golden/explain/answers.txt holds what each log leads to.

The logs in `composed` were written by readers who attacked `explain`, so some answers could be better. A changed line
of answers.txt needs a look: it may be a repair, or a fault that came with one.
"""

from __future__ import annotations

from pathlib import Path

from preflight.explain.explain_files import explain_paths
from preflight.model.explanation import Explanation, Quote
from tests.kept import compare

HERE = Path(__file__).parent


def at(quotes: tuple[Quote, ...]) -> str:
    """Return where these lines are and what they mean."""
    return "; ".join(f"{Path(each.source).name}:{each.line} {each.means}" for each in quotes)


def answer(explanation: Explanation) -> list[str]:
    """Return the answer as lines: causes, secondary errors, processes and notes."""
    lines = [f"{explanation.verdict.value} ({explanation.exit_code}): {explanation.summary}"]
    for cause in explanation.causes:
        lines += [f"cause {cause.cause} {cause.confidence.value}: {cause.verdict}", f"  because {cause.because}"]
        lines += [f"  at {at(cause.evidence)}", f"  env {cause.env}", f"  then {cause.confirm_with}"]
        lines += [f"  {step}" for step in cause.remedy.splitlines()]
    for other in explanation.consequences:
        lines += [f"also {other.cause}: {other.what} ({other.why}) {other.ranks}", f"  at {at(other.evidence)}"]
    for row in explanation.processes:
        first = at((row.first,)) if row.first else "no error"
        lines.append(f"{row.process}: {first}; ended {row.ended}; waited for {row.waited_for}")
    lines += [f"unusual {at((each,))}" for each in explanation.unusual]
    lines += [f"note {each}" for each in explanation.notes]
    return [*lines, *(f"capture {each}" for each in explanation.capture_next)]


def test_each_log_has_the_answer_that_is_kept() -> None:
    logs = [*sorted((HERE / "reported").glob("*.log")), *sorted((HERE / "composed").iterdir())]
    text = []
    for log in logs:
        found = answer(explain_paths([str(log)]))
        text += [f"== {log.parent.name}/{log.name}", *(line.replace(str(log), log.name) for line in found), ""]
    compare(HERE.parent / "golden" / "explain" / "answers.txt", "\n".join(text))
