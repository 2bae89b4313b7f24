"""How a child of a supervisor tells what happens to it: JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Report = Callable[[dict[str, Any]], None]
