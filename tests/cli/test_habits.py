"""Shorter to type: completion, options from variables, values as people write them, a check by its name."""

from __future__ import annotations

import pytest

from preflight.check.option_kinds import ELSEWHERE, JUDGED, NODES, PRINTED, TRIED
from preflight.cli.program import COMMANDS
from tests.command import Command

pytestmark = pytest.mark.heavy(6)


def test_the_program_alone_lists_its_commands_and_is_no_verdict(command: Command) -> None:
    ran = command.run()
    assert ran.code == 2
    assert all(f"  {name} " in ran.stdout for name in COMMANDS)


def test_a_mistake_names_the_command_whose_help_answers_it(command: Command) -> None:
    ran = command.run("timeout", "--paramz", "7B")
    assert (ran.code, ran.stdout) == (2, "")
    assert "(see preflight timeout --help)" in ran.stderr
    assert "(see preflight --help)" in command.run("tiemout").stderr


@pytest.mark.parametrize("text", ["7B", "7b", "7e9", "7_000_000_000", "7 B"])
def test_parameters_are_taken_as_people_write_them(command: Command, text: str) -> None:
    ran = command.run("timeout", "--params", text, "--strategy", "FSDP", "--world-size", "4", "--json", "-")
    assert ran.document["job"]["params"]["total"] == 7_000_000_000


@pytest.mark.parametrize("arguments", [("--deadline", "5x"), ("--deadline", "0"), ("--stage-limit", "inf")])
def test_a_duration_that_is_none_is_one_line(command: Command, arguments: tuple[str, ...]) -> None:
    ran = command.run("check", *arguments)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"preflight: {' '.join(arguments)}: ")


def test_a_deadline_takes_minutes_and_hours(command: Command) -> None:
    for text in ("1h30m", "5m", "90s", "90"):
        assert command.run("probe", "--deadline", text, "--json", "-").code in (0, 1, 3)


def test_an_option_comes_from_its_variable_and_the_command_line_overrides_it(command: Command) -> None:
    env = {"PREFLIGHT_TIMEOUT_WORLD_SIZE": "16", "PREFLIGHT_VERSION": "1.2", "PREFLIGHT_INSTALL_COMPLETION": "1"}
    assert command.run("timeout", "--json", "-", env=env).document["job"]["world_size"] == 16
    assert command.run("timeout", "--world-size", "2", "--json", "-", env=env).document["job"]["world_size"] == 2


@pytest.mark.parametrize(
    ("shell", "words", "at", "expected"),
    [
        ("bash", "preflight ch", "1", {"check", "checks"}),
        ("bash", "preflight check --dead", "2", {"--deadline"}),
        ("zsh", "preflight ch", "1", {"check", "checks"}),
        ("fish", "preflight ch", "1", {"check", "checks"}),
    ],
)
def test_a_shell_completes_commands_and_options(
    command: Command, shell: str, words: str, at: str, expected: set[str]
) -> None:
    env = {
        "_PREFLIGHT_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": at,
        "_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    ran = command.run(env=env)
    assert all(word in ran.stdout for word in expected), ran.stdout + ran.stderr


def test_a_check_is_explained_by_its_name_in_any_case(command: Command) -> None:
    ran = command.run("checks", "NVLink-Down")
    assert ran.stdout.startswith("nvlink-down  [gpu]\n")
    assert "can't see: " in ran.stdout
    (check,) = command.run("checks", "nvlink-down", "--json", "-").document["checks"]
    assert (check["name"], check["class"]) == ("nvlink-down", "gpu")
    assert check["promise"] and check["blind_to"]


def test_all_checks_are_a_document(command: Command) -> None:
    assert len(command.run("checks", "--json", "-").document["checks"]) > 50


def test_a_check_that_is_not_there_brings_those_spelled_alike(command: Command) -> None:
    ran = command.run("checks", "nvlink-dow")
    assert ran.code == 2
    assert "did you mean nvlink-down" in ran.stderr


def test_help_has_its_options_in_groups_the_output_last(command: Command) -> None:
    shown = command.run("check", "--help-all").stdout
    places = [shown.index(f"\n{title}:\n") for title in (TRIED, JUDGED, ELSEWHERE, NODES, PRINTED)]
    assert places == sorted(places)
    assert shown.index("--gpus") < shown.index("--strict") < shown.index("--nnodes") < shown.index("--env-out")
    assert shown.rstrip().splitlines()[-1].split()[:2] == ["-h,", "--help"]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_list_of_options_is_longer_than_a_glance(command: Command, name: str) -> None:
    for options in command.run(name, "--help").stdout.split("\n\n")[2:]:
        assert len([line for line in options.splitlines() if line.startswith("  -")]) <= 10
