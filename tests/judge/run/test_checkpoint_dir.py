from __future__ import annotations

import pytest

from preflight.judge.run.checkpoint_shared_storage import checkpoint_dir
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.storage import StorageSpeed
from tests.judge.findings import found, only
from tests.node_facts import case


def tried(write: float | Gap, read: float | Gap) -> StorageSpeed:
    return StorageSpeed("/ckpt", 2, 1 << 20, write, write, read, read, 1.0)


def test_a_directory_that_works_or_that_nobody_named_gives_nothing() -> None:
    assert found(checkpoint_dir, case(storage=tried(1e9, 2e9))) == found(checkpoint_dir, case()) == ()


@pytest.mark.parametrize(
    ("storage", "told"),
    [
        (tried(Gap("permission denied"), Gap("permission denied")), "could not be written there: permission denied"),
        (tried(1e9, Gap("it stood still")), "could not be read back there: it stood still"),
    ],
)
def test_one_that_fails_is_a_warning_with_its_reason(storage: StorageSpeed, told: str) -> None:
    finding = only(found(checkpoint_dir, case(storage=storage)))
    assert (finding.severity, finding.subject) == (Severity.WARN, "/ckpt")
    assert told in finding.problem
