"""Replace tokens, keys and passwords in log lines before the lines are quoted."""

from __future__ import annotations

import re

from preflight.explain.linear_patterns import compile_any

REDACTED = "[redacted]"
_NAME = (
    r"pass(?:word|wd|phrase|code)|pwd|secret(?:[_-]?\w{1,20})?|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|"
    r"account[_-]?key|signing[_-]?key|encryption[_-]?key|license[_-]?key|shared[_-]?key|client[_-]?secret|credentials?|"
    r"connection[_-]?string|auth"
)
_QUOTED = r"\"[^\"\n]{3,500}\"|'[^'\n]{3,500}'"
# Each form has one group: what is replaced. The names before it stay, so that the line can still be understood.
FORMS: dict[str, str] = {
    "a name and a value": rf"(?i)(?<![A-Za-z])(?:\w{{1,40}}[_.-])?(?:{_NAME})['\"]?\s{{0,3}}[=:]\s{{0,3}}"
    rf"({_QUOTED}|[^\s'\",;&)}}\]]{{4,500}})",
    "a token by its name": r"(?i)(?<![A-Za-z])(?:\w{1,40}[_.-])?token['\"]?\s{0,3}[=:]\s{0,3}['\"]?"
    r"([\w.~+/=-]{16,2000})",
    "an option": rf"(?i)\s--?(?:\w{{1,20}}-)?(?:{_NAME}|token)[ =]({_QUOTED}|[^\s'\"]{{4,500}})",
    "a header": r"(?i)\b(?:proxy-)?authorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?((?:(?:basic|bearer|token|negotiate|"
    r"aws4-hmac-sha256)\s{1,3})?[^\s'\"]{4,2000})",
    "a bearer": r"(?i)\bbearer\s{1,3}([\w.~+/=-]{8,2000})",
    "a cookie": r"(?i)\b(?:set-)?cookie['\"]?\s{0,3}:\s{0,3}([^\n]{4,2000})",
    "a login in an address": r"\b[a-z][a-z0-9+.-]{1,20}://([^\s/@'\"]{1,200}:[^\s/@'\"]{1,200})@",
    "a token in an address": r"\bhttps?://([^\s/@:'\"]{8,200})@",
    "a signed address": r"(?i)[?&](?:x-(?:amz|goog|oss|ms)-(?:signature|credential|security-token)|signature|sig|"
    r"awsaccesskeyid|ossaccesskeyid|security-token|access_token|token|key|code|sv|sktid|skoid)=([^\s&'\"]{4,2000})",
    "AWS": r"\b((?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,})",
    "Hugging Face": r"\b((?:hf|api_org)_[A-Za-z0-9]{6,})",
    "GitHub": r"\b(gh[pousr]_[A-Za-z0-9]{6,}|github_pat_\w{6,})",
    "GitLab": r"\b(gl(?:pat|ptt|dt|rt|cbt|ft|soat)-[\w-]{6,})",
    "keys that begin with sk": r"\b(sk-[\w-]{8,}|[rsp]k_(?:live|test)_\w{6,})",
    "Slack": r"\b(xox[abeoprs]-[\w-]{6,})|hooks\.slack\.com/services/(\S{6,200})",
    "Google": r"\b(AIza[\w-]{12,}|ya29\.[\w.-]{8,}|GOCSPX-[\w-]{8,})",
    "NVIDIA": r"\b(nvapi-[\w-]{6,})",
    "Databricks, Replicate and others": r"\b(dapi[0-9a-f]{16,}|r8_\w{8,}|dop_v1_\w{8,}|npm_\w{8,}|pypi-\w[\w-]{8,}|"
    r"dckr_pat_[\w-]{6,}|lin_api_\w{6,}|figd_[\w-]{6,}|shpat_\w{6,}|hvs\.[\w-]{6,}|gsk_\w{8,}|xai-\w{8,}|pul-\w{8,})",
    "SendGrid": r"\b(SG\.[\w-]{8,}\.[\w-]{8,})",
    "Telegram": r"(?<!\d)(\d{8,10}:AA[\w-]{16,})",
    "a JSON web token": r"\b(eyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?)",
    "a line of a key": r"^\s{0,8}([A-Za-z0-9+/]{60,76}={0,2})\s{0,8}$",
    "a private key": r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----([^\n]{0,8000})",
    "a login command": r"\b(?:wandb login|docker login [^\n]{0,80}-p|(?:huggingface-cli|hf auth) login --token)"
    r"(?: --relogin)? ([^\s-]\S{4,200})",
}
PATTERNS = tuple(re.compile(form) for form in FORMS.values())
# A line without any of these holds no form, and costs one search.
HINTS = compile_any((
    r"(?i:pass|pwd|secret|key|credential|connection.?string|auth|token|bearer|cookie|login|sig=|code=|://)",
    r"AKIA|ASIA|AROA|AIDA|hf_|api_org_|gh[pousr]_|github_pat|gl[a-z]{2,4}-|sk-|[rsp]k_|xox|slack|AIza|ya29",
    r"GOCSPX|nvapi-|dapi",
    r"^[A-Za-z0-9+/]{60,76}={0,2}$",
    r"r8_|dop_|npm_|pypi-|dckr_|lin_api|figd_|shpat_|hvs\.|gsk_|xai-|pul-|SG\.|:AA|eyJ|BEGIN ",
))  # fmt: skip


def without_secrets(text: str) -> str:
    """Return a copy of `text` in which tokens, keys and passwords are replaced."""
    for pattern in PATTERNS:
        text = pattern.sub(_replaced, text)
    return text


def may_hold_secrets(raw: bytes) -> bool:
    """Return whether the bytes of a log line may contain a secret. This test is faster than `without_secrets`."""
    return HINTS.search(raw) is not None


def _replaced(match: re.Match[str]) -> str:
    start, end = next(match.span(group) for group in range(1, match.re.groups + 1) if match[group] is not None)
    return f"{match.string[match.start() : start]}{REDACTED}{match.string[end : match.end()]}"
