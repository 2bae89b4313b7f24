"""preflight: find out why NCCL will fail, before the job does."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from importlib import import_module
from types import ModuleType

from preflight.errors import NotReady, PreflightError, UsageError

TYPE_CHECKING = False  # as type checkers know it; loading `typing` would double the time of `import preflight`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from preflight.api import Probed, check, explain, probe, safe_timeout, stuck
    from preflight.model.report import Report

__all__ = [
    "NotReady", "PreflightError", "Probed", "Report", "UsageError", "__version__",
    "check", "explain", "pg_timeout", "probe", "safe_timeout", "stuck",
]  # fmt: skip

__version__ = "0.1.0"

PG_TIMEOUT = "PREFLIGHT_PG_TIMEOUT_S"
LONGEST_PG_TIMEOUT_S = 7 * 86400
LATE = (
    "Probed",
    "Report",
    "check",
    "explain",
    "probe",
    "safe_timeout",
    "stuck",
)  # what of the API loads more than a name


def pg_timeout(environ: Mapping[str, str] | None = None) -> timedelta | None:
    """Return the timeout in the variable PREFLIGHT_PG_TIMEOUT_S, for torch's process group.

    A sourced `preflight.env` sets the variable, in seconds. Return None if the variable is unset or empty. With None,
    `torch.distributed.init_process_group` uses its default timeout. Raise UsageError if the value is not an integer
    from 1 to 604800. `environ` defaults to the environment of this process.
    """
    text = (os.environ if environ is None else environ).get(PG_TIMEOUT, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and 0 < int(text) <= LONGEST_PG_TIMEOUT_S):
        raise UsageError(f"{PG_TIMEOUT}={text[:40]!r}: not whole seconds from 1 to {LONGEST_PG_TIMEOUT_S}")
    return timedelta(seconds=int(text))


def __getattr__(name: str) -> Any:
    """Return the object `name` of the Python API.

    The module `preflight.api` is loaded at the first call of this function.
    """
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from preflight import api  # noqa: PLC0415  `import preflight` stays quick

    return getattr(api, name)


def __dir__() -> list[str]:
    """Return the names that this package exports, for tab completion."""
    return sorted((*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__"))


class _ByName(ModuleType):
    """A module that is pickled as a reference to its name, without its content.

    Ray needs this class, because Ray pickles the modules that an actor refers to.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


class _CalledModule(_ByName):
    """A module that can be called. The call runs the API function that has the name of the module.

    The modules of the folders `check`, `explain` and `stuck` have this class.
    """

    def __call__(self, *given: Any, **named: Any) -> Any:
        from preflight import api  # noqa: PLC0415  as above

        return getattr(api, self.__name__.rpartition(".")[2])(*given, **named)


class _Package(_ByName):
    """The module of this package, which makes the folders `check`, `explain` and `stuck` callable.

    If Python imports one of these folders, the folder's module replaces the API function of the same name. A call of
    the folder's module then runs this API function.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in LATE and isinstance(value, ModuleType):
            value.__class__ = _CalledModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
