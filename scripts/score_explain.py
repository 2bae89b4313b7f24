"""How often `preflight explain` is right on labelled logs: the table of one or more folders.

    python -m scripts.score_explain [--json] DIR...

A folder holds logs and a JSON beside each: `013.json` labels `013.log`, `013.log.gz` or all files of the folder `013`.
A folder without a JSON stands for the labelled folders in it. Of a JSON, `label` must be there; `also_acceptable` are
neighbours that are not wrong, `must_not` what nobody may be told, `confirmed` (true where it is missing) whether the
cause was proved. What no cause has answers with its verdict: `healthy`, `not_enough_evidence`, ...

    right      the first cause is the label
    near       it is an accepted neighbour; `unfinished` too where the label lets the run be healthy, or be unknown
               though healthy: the labels have no word for a log without an end (how many is said below the table)
    nothing    none is named, and nobody is told that all is well
    wrong      another one is named, or the log can't be read
    forbidden  it is one of `must_not`, or `healthy` for a run that failed

"alarms" are causes named of a run that succeeded, "beside" are logs of which a later one of the causes named is one of
`must_not`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from preflight.errors import PreflightError
from preflight.explain.explain_files import explain_paths

HEALTHY, TEARDOWN = "healthy", "teardown_after_success"
SUCCEEDED = frozenset({HEALTHY, TEARDOWN})
UNNAMED, UNFINISHED = "not_enough_evidence", "unfinished"
SILENT = frozenset({UNNAMED, UNFINISHED})
CAUSE_NAMED = "cause_named"
NO_CAUSE = "none"
CONFIDENCES = ("high", "medium", "low", NO_CAUSE)


class Result(str, Enum):
    """What an answer is worth."""

    RIGHT = "right"
    NEAR = "near"
    NOTHING = "nothing"
    WRONG = "wrong"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled log, or several of one run."""

    name: str
    files: tuple[str, ...]
    label: str
    also: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    confirmed: bool = True
    source: str = ""

    @property
    def failed(self) -> bool:
        """Tell whether nobody may call this run healthy."""
        return self.label not in SUCCEEDED and HEALTHY not in self.also

    @property
    def may_go_on(self) -> bool:
        """Tell whether the log may be one without an end: the labels of the corpus have no word for that.

        Either of a healthy run, or of one that failed so silently that the label lets it pass for healthy.
        """
        return HEALTHY in (self.label, *self.also) or (self.label in SUCCEEDED and UNNAMED in self.also)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said of a case; `beside` are the causes named after the first."""

    got: str
    confidence: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scored:
    """A case, the answer, and what it is worth."""

    case: Case
    answer: Answer
    result: Result

    @property
    def is_alarm(self) -> bool:
        """Tell whether a cause is named of a run that succeeded."""
        is_fine = self.case.label in SUCCEEDED and self.result not in (Result.RIGHT, Result.NEAR)
        return is_fine and self.answer.confidence != NO_CAUSE

    @property
    def is_forbidden_beside(self) -> bool:
        """Tell whether a later one of the causes named is one that nobody may be told."""
        return any(cause in self.case.must_not for cause in self.answer.beside)


def labelled_folders(folder: Path) -> list[Path]:
    """Return the folder itself where it has labels, else the folders in it that have some."""
    if any(folder.glob("*.json")):
        return [folder]
    return sorted({path.parent for path in folder.glob("*/*.json")})


def cases(folder: Path) -> list[Case]:
    """Return the cases of a labelled folder; SystemExit where a label has no log or contradicts itself."""
    return [_case(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]


def _case(path: Path, about: dict[str, Any]) -> Case:
    beside = path.with_suffix("")
    if beside.is_dir():
        files = sorted(str(file) for file in beside.rglob("*") if file.is_file())
    else:
        files = sorted(str(file) for file in path.parent.glob(f"{path.stem}.*") if file != path)
    case = Case(
        f"{path.parent.name}/{path.stem}", tuple(files), about["label"], tuple(about.get("also_acceptable", ())),
        tuple(about.get("must_not", ())), about.get("confirmed", True), about.get("source", ""),
    )  # fmt: skip
    if not files:
        raise SystemExit(f"{path}: there is no log beside it")
    if contradiction := {case.label, *case.also} & {*case.must_not}:
        raise SystemExit(f"{path}: {', '.join(sorted(contradiction))} is both accepted and forbidden")
    return case


def ask(files: Sequence[str]) -> Answer:
    """Let preflight explain some files as those of one run."""
    try:
        explanation = explain_paths(files)
    except PreflightError as error:
        return Answer(f"{type(error).__name__}: {error}", NO_CAUSE)
    if not explanation.causes:
        return Answer(explanation.verdict.value, NO_CAUSE)
    first, *others = explanation.causes
    return Answer(first.cause, first.confidence.value, tuple(cause.cause for cause in others))


def judge(case: Case, answer: Answer) -> Scored:
    """Say what an answer is worth."""
    if answer.got == case.label:
        result = Result.RIGHT
    elif answer.got in case.also or (answer.got == UNFINISHED and case.may_go_on):
        result = Result.NEAR
    elif answer.got in case.must_not or (answer.got == HEALTHY and case.failed):
        result = Result.FORBIDDEN
    elif answer.got in SILENT:
        result = Result.NOTHING
    else:
        result = Result.WRONG
    return Scored(case, answer, result)


def score(folder: Path) -> list[Scored]:
    """Explain and judge every case of a labelled folder."""
    return [judge(case, ask(case.files)) for case in cases(folder)]


def _row(name: str, scored: Sequence[Scored]) -> str:
    count = Counter(each.result for each in scored)
    numbers = " ".join(f"{count[result]:9}" for result in Result)
    if not scored:
        return f"{name:24} {0:5} {numbers}"
    right, near = count[Result.RIGHT] / len(scored), (count[Result.RIGHT] + count[Result.NEAR]) / len(scored)
    alarms, beside = sum(each.is_alarm for each in scored), sum(each.is_forbidden_beside for each in scored)
    return f"{name:24} {len(scored):5} {numbers} {right:8.1%} {near:8.1%} {alarms:6} {beside:6}"


def _miss(scored: Scored) -> str:
    got = scored.answer.got + ("" if scored.answer.confidence == NO_CAUSE else f" ({scored.answer.confidence})")
    return f"{scored.result.value:9} {scored.case.name:16} {scored.case.label:36} got {got}"


def describe(sets: dict[str, list[Scored]]) -> str:
    """Return the table: by folder, the confirmed ones, by confidence; then a line for every miss."""
    everything = [scored for each in sets.values() for scored in each]
    heads = " ".join(f"{result.value:>9}" for result in Result)
    lines = [f"{'logs of':24} {'logs':>5} {heads} {'right':>8} {'or near':>8} alarms beside"]
    lines += [_row(name, scored) for name, scored in sets.items()]
    if len(sets) > 1:
        lines.append(_row("all", everything))
    for name, confirmed in (("confirmed", True), ("not confirmed", False)):
        lines.append(_row(name, [each for each in everything if each.case.confirmed is confirmed]))
    for confidence in CONFIDENCES:
        said = "no cause named" if confidence == NO_CAUSE else f"said with {confidence}"
        lines.append(_row(said, [each for each in everything if each.answer.confidence == confidence]))
    open_ended = sum(each.answer.got == UNFINISHED and each.result is Result.NEAR for each in everything)
    lines.append(f"of the near ones {open_ended} are `unfinished`: nothing failed, and no line says that the run ended")
    missed = [each for each in everything if each.result not in (Result.RIGHT, Result.NEAR)]
    lines += ["", "misses" if missed else "no miss", *map(_miss, missed)]
    beside = [each for each in everything if each.is_forbidden_beside]
    if beside:
        lines += ["", "named beside the first cause, and forbidden"]
        lines += [
            f"{each.case.name:26} {each.answer.got:36} beside it "
            + ", ".join(cause for cause in each.answer.beside if cause in each.case.must_not)
            for each in beside
        ]
    return "\n".join(lines) + "\n"


def _records(sets: dict[str, list[Scored]]) -> list[dict[str, Any]]:
    return [
        {
            "set": name, "case": each.case.name, "source": each.case.source, "label": each.case.label,
            "confirmed": each.case.confirmed, "got": each.answer.got, "confidence": each.answer.confidence,
            "beside": list(each.answer.beside), "result": each.result.value,
        }
        for name, scored in sets.items()
        for each in scored
    ]  # fmt: skip


def main(arguments: Iterable[str] | None = None) -> None:
    """Print the table of the folders that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true", help="one record a log, instead of the table")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    folders = [found for folder in asked.folders for found in labelled_folders(folder)]
    if not folders:
        parser.error("no labelled log (a JSON beside a log) in " + ", ".join(map(str, asked.folders)))
    sets = {_name(folder): score(folder) for folder in dict.fromkeys(folders)}
    sys.stdout.write(json.dumps(_records(sets), indent=1) + "\n" if asked.json else describe(sets))


def _name(folder: Path) -> str:
    return "/".join(folder.resolve().parts[-2:])[-24:]


if __name__ == "__main__":
    main()
