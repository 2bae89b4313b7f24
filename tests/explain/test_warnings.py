"""A warning is no cause: the program went on after it."""

from __future__ import annotations

import pytest

from preflight.model.explanation import Confidence, ExplainVerdict
from tests.explain.logs import cause_of_lines, explain_bytes

START = ("[2026-05-02 10:00:00] INFO world_size=8 nodes=1", "[2026-05-02 10:00:09] INFO iteration 10/500 loss 7.31")
IMPORTS = (
    "/opt/venv/lib/python3.12/site-packages/fastops/executors.py:56: UserWarning: transformer_engine failed to import "
    "with exception cannot import name 'BlockRecipe' from 'transformer_engine.common.recipe' (/opt/te/__init__.py)",
    '  warnings.warn(f"transformer_engine failed to import with exception {ex}")',
)
KERNELS = "/opt/app/ops.py:9: FutureWarning: fused kernel skipped: libcudnn_adv.so.9: undefined symbol: cudnnGetLayer"
OWN_ERROR = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "/opt/app/train.py", line 88, in collate',
    "[rank3]: KeyError: 'caption'",
)


@pytest.mark.parametrize("warning", [IMPORTS, (KERNELS,)], ids=["import", "symbol"])
def test_a_log_of_work_with_a_warning_of_python_names_no_cause(warning: tuple[str, ...]) -> None:
    explanation = explain_bytes("\n".join((*warning, *START)).encode())
    assert explanation.verdict is ExplainVerdict.UNFINISHED, explanation.summary


def test_what_a_rank_died_of_is_the_cause_and_not_a_warning_at_its_start() -> None:
    explanation = explain_bytes("\n".join((*IMPORTS, *START, *OWN_ERROR)).encode())
    assert [cause.cause for cause in explanation.causes] == ["not_nccl"]
    assert "KeyError" in explanation.causes[0].verdict


def test_a_warning_is_likely_at_most_where_the_run_failed_without_another_word() -> None:
    explanation = explain_bytes(
        "\n".join((*IMPORTS, "[launch.py:325] process 4711 exits with return code = 1")).encode()
    )
    assert [(c.cause, c.confidence) for c in explanation.causes] == [("version_mismatch", Confidence.MEDIUM)]
    assert "a warning names this cause" in explanation.causes[0].because


# SGLang 0.5.23, on the way to its model.
MODELS = (
    "[2026-11-27 16:00:39 TP0] Ignore import error when loading sglang.srt.models.mamba: cannot import name "
    "'causal_conv1d_fn' from 'sglang.srt.layers.attention.mamba.mamba' (/opt/sglang/mamba.py)",
)
CRASHED = (
    "[2026-11-27 16:05:14] Subprocess scheduler_1 (pid=21423) crashed with exit code -9. Triggering SIGQUIT for "
    "cleanup...",
)


def test_models_that_sglang_does_not_import_are_no_fault_and_a_killed_scheduler_has_its_name() -> None:
    assert explain_bytes("\n".join((*MODELS, START[1])).encode()).causes == ()
    explanation = explain_bytes("\n".join((*MODELS, *CRASHED)).encode())
    assert [cause.cause for cause in explanation.causes] == ["host_oom_killed"]
    assert explanation.causes[0].verdict.startswith("Signal 9 killed SGLang's scheduler_1, which printed no error.")


FINALIZER = (
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.12/multiprocessing/util.py", line 303, in _run_finalizers',
    "    finalizer()",
    '  File "/usr/lib/python3.12/multiprocessing/synchronize.py", line 87, in _cleanup',
    "    sem_unlink(name)",
    "FileNotFoundError: [Errno 2] No such file or directory",
)
OPTIONAL = (
    " 7: Import of fast_gelu from acme.fusions.bias failed with: Traceback (most recent call last):",
    ' 7:   File "/opt/nemo/utils/import_utils.py", line 319, in safe_import_from',
    " 7:     return getattr(imported_module, symbol), True",
    " 7: AttributeError: module 'acme.fusions.bias' has no attribute 'fast_gelu'",
)


@pytest.mark.parametrize("caught", [FINALIZER, OPTIONAL], ids=["finalizer", "import"])
def test_an_exception_that_was_printed_and_forgotten_is_no_cause(caught: tuple[str, ...]) -> None:
    assert explain_bytes("\n".join((START[0], *caught, START[1])).encode()).causes == ()
    raised = caught[-1].removeprefix(" 7: ")
    fatal = ("Traceback (most recent call last):", '  File "/opt/app/train.py", line 3, in <module>', raised)
    assert cause_of_lines((*START, *fatal)) == "not_nccl"


def test_a_fault_of_the_machine_counts_where_a_warning_tells_it_too() -> None:
    warning = "/opt/torch/cuda/__init__.py:80: UserWarning: CUDA initialization: Error 802: system not yet initialized"
    assert cause_of_lines([warning]) == "nvlink_or_fabric_manager"
