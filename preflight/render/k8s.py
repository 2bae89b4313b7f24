"""A Kubernetes node condition, as the patch that sets it: kubectl patch node N --subresource=status --patch-file F."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone

from preflight.model.report import Report
from preflight.render.reasons import deciding, is_bad, is_good, summary

TYPE = "PreflightReady"
MOST_MESSAGE = 1024  # kubectl describe prints it on one line
NOT_A_LETTER = re.compile(r"[^A-Za-z0-9]+")


def render_k8s(report: Report) -> str:
    """Return the YAML; True is ready or accepted, False not, Unknown what could not be looked at.

    Every value is a double-quoted scalar as JSON writes it, which is YAML too: no text from outside can end it.
    """
    message = summary(report)
    condition = {
        "type": TYPE,
        "status": "True" if is_good(report) else "False" if is_bad(report) else "Unknown",
        "reason": _reason(report),
        "message": message if len(message) <= MOST_MESSAGE else message[: MOST_MESSAGE - 3] + "...",
    }
    at = rfc3339(report.created_at)
    if at:
        condition |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
    lines = [f"{key}: {json.dumps(value)}" for key, value in condition.items()]
    return "\n".join(["status:", "  conditions:", f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])]) + "\n"


def rfc3339(created_at: str) -> str:
    """Return `2026-10-05T12:00:00Z`, "" where the text is no date with a time zone."""
    try:
        at = datetime.fromisoformat(created_at.replace("Z", "+00:00"))
        return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if at.tzinfo and at.year >= 1000 else ""
    except (ValueError, OverflowError):
        return ""


def _reason(report: Report) -> str:
    """Return one word, as Kubernetes wants it: the check that decided, in its spelling of names."""
    if is_good(report):
        return "Ready"
    if not is_bad(report):
        return "CouldNotLook"
    words = [NOT_A_LETTER.split(each.check) for each in deciding(report)[:1]]
    name = "".join(word[:1].upper() + word[1:] for word in (words[0] if words else ()))
    return name[:200] if name[:1].isalpha() else "NoSettingWorks"
