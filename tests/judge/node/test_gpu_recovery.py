from __future__ import annotations

import pytest

from preflight.judge.node.gpu_mode_recovery import RECOVERY_FIXES, gpu_recovery
from preflight.model.finding import Severity
from preflight.model.gpu import RecoveryAction
from tests.gpus import NO_PAGES, gpu
from tests.judge.findings import on_gpus, only
from tests.node_facts import gpu_node


@pytest.mark.parametrize("action", [each for each in RecoveryAction if each is not RecoveryAction.NONE])
def test_every_action_that_the_driver_asks_for_fails_with_its_fix(action: RecoveryAction) -> None:
    finding = only(on_gpus(gpu_recovery, gpu_node(1, gpus=(gpu(0, recovery_action=action),))))
    assert (finding.severity, finding.fix) == (Severity.FAIL, RECOVERY_FIXES[action])


def test_a_driver_that_asks_for_nothing_or_does_not_know_the_question_is_fine() -> None:
    assert on_gpus(gpu_recovery, gpu_node(gpus=(gpu(0), gpu(1, recovery_action=NO_PAGES)))) == ()
