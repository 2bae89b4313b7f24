"""What is taken in without pydantic is what typer would have made of it, for every parameter of every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from preflight.cli.plain_values import PlainFirst, take_plain_values
from preflight.cli.program import COMMANDS, real_command
from preflight.errors import UsageError
from tests.cli.test_startup import IMPORT_TIMES, imported
from tests.command import Command

TYPED = ("", "x", "a\udcff", "7", "-1", "1e3", "90s", "1h30m", "quick", "BURN", "start", "nccl", "true")


def parameters() -> Iterator[Any]:
    for name in COMMANDS:
        for param in real_command(name).params:
            yield pytest.param(param, id=f"{name} {param.name}")


def outcome(runtime: Any, value: object, param: Any) -> object:
    """Return what a value becomes, or the error that says why it does not."""
    try:
        made = runtime.coerce(value, param=param, ctx=None)
    except (typer.TyperException, UsageError) as error:
        return type(error), str(error)
    return type(made), made


@pytest.mark.parametrize("param", [*parameters()])
def test_a_value_is_what_typer_makes_of_it(param: Any) -> None:
    of_typer = param.get_runtime_param()
    take_plain_values([param])
    plain = param.get_runtime_param()
    assert isinstance(plain, PlainFirst)
    is_list = param.multiple or param.nargs == -1
    texts = [*TYPED, "1h30m" * 20]
    given: list[object] = [None, param.default, *([[], ("a",), ["a", "b\udcff"], texts] if is_list else texts)]
    for value in given:
        assert outcome(plain, value, param) == outcome(of_typer, value, param), value


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--version", 0),
        ("checks --json -", 0),
        ("probe --deadline 30", 0),
        ("run --reuse 1h --gpus 0 -- no-such-job", 127),
    ],
)
def test_pydantic_is_loaded_by_no_command_that_needs_none(command: Command, line: str, code: int) -> None:
    ran = command.run(*line.split(), env=IMPORT_TIMES | {"PREFLIGHT_VERBOSE": ""})  # "1" has to be made into True
    modules = imported(ran.stderr)
    assert ran.code == code, ran.stdout
    assert "typer" in modules, "the imports were not seen"
    assert not [name for name in modules if name.partition(".")[0].startswith("pydantic")]
    if line.startswith("run"):  # nor what only a report needs
        assert not modules & {"preflight.model.report", "preflight.facts.run", "preflight.check.survey"}


class Other:
    """A parameter of a typer with other insides."""

    def get_runtime_param(self) -> str:
        return "its own"


def test_another_typer_does_it_by_itself() -> None:
    other = Other()
    take_plain_values([other])
    assert other.get_runtime_param() == "its own"
