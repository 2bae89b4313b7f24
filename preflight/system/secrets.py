"""Hide values that must not leave the machine: the values of secret variables, and passwords in URLs."""

from __future__ import annotations

import functools
import html
import json
import os
import re

HIDDEN = "(hidden)"
NAME = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
NO_SECRET = re.compile(r"(^|_)PKEY$")  # InfiniBand's partition keys are an index: NCCL_IB_PKEY
URL = re.compile(r"(://)[^/\s:@'\"]*:[^/\s@'\"]+@")
LEAST_CHARACTERS = 8  # shorter values are words and switches, and occur in ordinary text


def is_secret(name: str) -> bool:
    """Return whether the name `name` of a variable suggests that the variable's value is a secret."""
    return NAME.search(name) is not None and NO_SECRET.search(name) is None


def shown(name: str, value: str) -> str:
    """Return the value of variable `name` for a report, with secrets replaced by HIDDEN."""
    return HIDDEN if is_secret(name) else hide(value)


def hide(text: str) -> str:
    """Return the text with this process's secrets and the passwords in URLs replaced by HIDDEN."""
    # The secrets are the values of environment variables with a name that suggests a secret.
    text = URL.sub(rf"\1{HIDDEN}@", text)
    for secret in _secrets():
        text = text.replace(secret, HIDDEN)
    return text


@functools.cache
def _secrets() -> tuple[str, ...]:
    values = {value for name, value in os.environ.items() if is_secret(name) and len(value) >= LEAST_CHARACTERS}
    forms = {form for value in values for form in (value, json.dumps(value)[1:-1], html.escape(value))}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))
