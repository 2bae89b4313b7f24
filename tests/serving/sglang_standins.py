"""Stand-ins for modules that SGLang imports on every machine and whose builds need CUDA; `fetch` installs them.

SGLang then takes torch's own operations, and reduces through torch.distributed (gloo).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

NAMES = frozenset(("sgl_kernel", "torchvision"))


class Nothing(type):
    """The type of what a stand-in has: a class that has everything, and does nothing."""

    def __getattr__(cls, name: str) -> type:
        return _nothing(name)


def _nothing(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return Nothing(name, (), {})


class StandIn(types.ModuleType):
    """A module that has every name."""

    __path__ = []  # noqa: RUF012  as the import system has it
    __version__ = "0.28.0"  # transformers asks for torchvision's

    def __getattr__(self, name: str) -> type:
        return _nothing(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for each of these modules and what they contain."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a stand-in; None for every other module."""
        is_ours = name.partition(".")[0] in NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_ours else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return the stand-in."""
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: there is nothing to run."""


sys.meta_path.insert(0, Finder())
