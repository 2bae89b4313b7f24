"""On PYTHONPATH of a simulated machine: whoever imports torch gets tensors that are right (simtorch.py)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import cast


class _Then:
    """Import simtorch as soon as torch is there."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            loader = cast(Loader, spec.loader)
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                importlib.import_module("tests.simcuda.simtorch")

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Then())
