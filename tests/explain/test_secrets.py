"""Nothing secret is repeated: what is quoted on pages and in JSON has no tokens, keys and passwords."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.explain.secrets import FORMS, REDACTED, without_secrets
from preflight.show.explain import explain_page, render_explanation_env
from preflight.show.text import Detail, Style
from tests.explain.logs import explain_bytes

# Invented, and written in parts: no scanner of this repository is to take them for real ones.
X = "Q7f2" * 10
SECRETS: dict[str, tuple[str, str]] = {
    "aws id": ("using %s for the bucket", "AKIA" + "Z3ABCDEFGH4JKLMN"),
    "aws session id": ("using %s for the bucket", "ASIA" + "Z3ABCDEFGH4JKLMN"),
    "aws secret": ("aws_secret_access_key = %s", X),
    "aws in json": ('{"SecretAccessKey": "%s"}', X),
    "hugging face": ("HF_TOKEN=%s is not valid", "hf_" + X),
    "hugging face bare": ("login with %s failed", "hf_" + X[:20]),
    "github": ("cloning with %s", "ghp_" + X),
    "github fine": ("cloning with %s", "github_pat_" + X),
    "gitlab": ("cloning with %s", "glpat-" + X[:20]),
    "openai": ("bad key %s", "sk-" + X),
    "openai project": ("bad key %s", "sk-proj-" + X),
    "anthropic": ("x-api-key: %s", "sk-ant-" + X),
    "slack": ("posting as %s", "xoxb-" + "1234567890-" + X[:12]),
    "slack hook": ("POST https://hooks.slack.com/services/%s", "T01/B02/" + X[:20]),
    "google": ("key=%s", "AIza" + X[:35]),
    "google oauth": ("using %s", "ya29." + X),
    "nvidia": ("pull with %s", "nvapi-" + X),
    "wandb": ("WANDB_API_KEY=%s", "0f" * 20),
    "wandb login": ("wandb login --relogin %s", "0f" * 20),
    "jwt": ("got %s", "eyJ" + X[:20] + "." + X[:20] + "." + X[:20]),
    "bearer": ("Authorization: Bearer %s", X),
    "basic": ("Authorization: Basic %s", X[:24] + "=="),
    "bearer in a dict": ("{'Authorization': 'Bearer %s'}", X),
    "postgres": ("postgresql://%s@db:5432/mlflow", "trainer:" + "pa55w0rd"),
    "redis": ("redis://%s@cache:6379/0", ":".join(("default", "Hunter22"))),
    "git address": ("https://%s@git.example/a.git", "oauth2:" + X[:20]),
    "token address": ("https://%s@git.example/a.git", X[:20]),
    "s3 presigned": ("GET https://b.example/o?X-Amz-Date=1&X-Amz-Signature=%s&a=1", "ab" * 32),
    "s3 credential": ("GET https://b.example/o?X-Amz-Credential=%s", "ZZZZ" + "KEY/20260502/eu/s3"),
    "gcs presigned": ("GET https://b.example/o?x-goog-signature=%s", "cd" * 32),
    "azure": ("https://a.example/c?sv=2024&sig=%s", X[:30] + "%3D"),
    "azure account": ("AccountName=a;AccountKey=%s;Suffix=x", X + "=="),
    "password": ("password=%s", "hunter" + "2!"),
    "password quoted": ('{"db_password": "%s"}', "two words" + " 7"),
    "password yaml": ("redis_passwd: %s", "s3cr3t" + "pw"),
    "option": ("train.py --api-key %s --lr 1", X[:18]),
    "option of a password": ("train.py --password=%s", "open" + "sesame"),
    "docker auth": ('{"auths": {"r.example": {"auth": "%s"}}}', "dXNlcjpw" + "YXNzd29yZA=="),
    "private key": ("-----BEGIN RSA PRIVATE KEY-----%s", "MIIE" + X),
    "databricks": ("DATABRICKS_TOKEN: %s", "dapi" + "0f" * 16),
    "cookie": ("Cookie: session=%s", X[:24]),
    "telegram": ("bot%s", "1234567890" + ":AA" + X[:33]),
    "stripe": ("%s was refused", "sk_live_" + X[:24]),
    "sendgrid": ("mail with %s", "SG." + X[:22] + "." + X),
    "vault": ("VAULT_ADDR=x %s", "hvs." + X),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_planted_secret_is_on_no_page_and_in_no_json(name: str) -> None:
    shape, secret = SECRETS[name]
    line = shape % secret
    traceback = ["Traceback (most recent call last):", '  File "/opt/app/a.py", line 3, in f', f"    call('{line}')"]
    logs = (
        [*traceback, f"ValueError: {line}"],
        [f"fatal: {line}", "Aborted (core dumped)"],
        [f"[rank0]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. {line}"],
        ["step 3", line],
        [f"Saving model checkpoint to /out {line}", "[Rank 1] Watchdog caught collective operation timeout: x"],
    )
    for lines in logs:
        explanation = explain_bytes("\n".join(lines).encode() + b"\n")
        told = [
            explain_page(explanation).shown(Detail.ALL, Style(10_000)),
            json.dumps(asdict(explanation), default=str),
            render_explanation_env(explanation),
        ]
        assert not any(secret in text or json.dumps(secret)[1:-1] in text for text in told), lines


def test_there_are_forty_of_them_and_each_leaves_the_rest_of_its_line() -> None:
    assert len(SECRETS) >= 40
    for shape, secret in SECRETS.values():
        shown = without_secrets(shape % secret)
        assert REDACTED in shown
        assert shown[:3] == f"{shape.partition('%s')[0]}{REDACTED}"[:3]


@pytest.mark.parametrize(
    "line",
    [
        "max_tokens=4096 pad_token=<pad> eos_token_id: 2 num_key_value_heads=8",
        "KeyError: 'caption'",
        "wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
        "[rank1]: torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//worker",
        "NCCL WARN NET/IB : Got completion from peer 10.1.1.2<4> with status=12 opcode=0",
        "consumed tokens: 123456789012345678901234 | tokens per second: 12000.5",
        "remote=[gpu-1.example]:29500, local=[gpu-2]:4711",
        "commit 8f3b2a1c9d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a",
        "tokenizer config file saved in /out/checkpoint-10/tokenizer_config.json",
        "tcp://10.0.0.1:29500?rank=3&world_size=8",
        "author: somebody, authority: none",
    ],
)
def test_what_only_looks_like_one_stays(line: str) -> None:
    assert without_secrets(line) == line


@given(st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    assert isinstance(without_secrets(text), str)


def test_every_form_is_planted() -> None:
    planted = [shape % secret for shape, secret in SECRETS.values()]
    unused = [name for name, form in FORMS.items() if not any(re.search(form, line) for line in planted)]
    assert unused == ["a line of a key"]
    assert without_secrets(X[:40] + "AbCd" * 6) == REDACTED
