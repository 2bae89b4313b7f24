"""Where the material that lies beside the project is: read by tests when it is there, never copied in."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("PREFLIGHT_SHARED") or PROJECT.parent / "shared")
LOGS = SHARED / "corpus" / "logs"
