"""What is released says so: the version in the changelog; the policy that the docs show can be read."""

from __future__ import annotations

import re

from preflight import __version__
from preflight.judge.check import all_checks
from preflight.judge.policy import parse_policy
from preflight.model.policy import Level
from tests.conftest import PROJECT

RELEASE = re.compile(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def test_the_changelog_names_this_version_first_and_what_comes_above_it() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert RELEASE.findall(text)[0][0] == __version__
    assert text.index("## Unreleased") < text.index(f"## {__version__}")


def test_the_policy_that_the_docs_show_is_a_policy() -> None:
    page = "docs/accept.md"
    text = (PROJECT / page).read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```\n", text, re.DOTALL)
    policy = parse_policy(shown, page, {check.name for check in all_checks()}, "2026-11-21")
    assert dict(policy.levels)["memlock"] is Level.FATAL
    assert [waiver.until for waiver in policy.waivers] == ["2027-01-31"]
    assert policy.expect["gpu_count"] == 8 and len(policy.floors) == 2


def test_the_makefile_defines_what_ci_calls_and_each_target_once() -> None:
    targets = re.findall(
        r"^([a-z][a-z-]*):(?!=| export )", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    called = re.findall(r"^part make ([a-z-]+)", (PROJECT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(targets) == len(set(targets))
    assert called and set(called) <= set(targets)
