"""The lines are held against the packages that are installed: the names exist, the units and defaults are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from preflight.system.installed import installed_versions
from preflight.timeout.frameworks import deepspeed_default_s, framework_lines
from tests.timeout.test_safe_timeout import NOTHING

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

DELTA = "from datetime import timedelta; import json, inspect\n"


@pytest.fixture
def ask(need: Callable[[str, bool, str], None]) -> Callable[[str, str], Any]:
    """Return a function that asks an installed package something in a process of its own."""

    def answer(package: str, code: str) -> Any:
        need("frameworks", bool(installed_versions((package,))), f"{package} is not installed")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONPATH")}
        kept |= {"DEEPSPEED_TIMEOUT": "29", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
        ran = subprocess.run(
            [sys.executable, "-c", DELTA + code], env=kept, capture_output=True, text=True, timeout=200, check=False
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        return json.loads(ran.stdout.splitlines()[-1])

    return answer


def line_of(framework: str, pg_s: int = 1740, **versions: str) -> Any:
    return next(each for each in framework_lines(pg_s, 660, NOTHING, versions, 3) if each.name == framework)


def test_torch_takes_the_timeout_and_has_the_default_that_is_told(ask: Callable[[str, str], Any]) -> None:
    code = (
        "import torch.distributed as dist, torch\n"
        "from torch.distributed import distributed_c10d as c10d\n"
        "from torch.distributed.constants import default_pg_nccl_timeout as nccl\n"
        "print(json.dumps(['timeout' in inspect.signature(dist.init_process_group).parameters,"
        "'timeout' in inspect.signature(dist.new_group).parameters, nccl.total_seconds() if nccl else None,"
        "hasattr(dist, 'set_timeout'), hasattr(c10d, '_set_pg_timeout')]))"
    )
    on_init, on_new_group, default_s, has_public, has_private = ask("torch", code)
    version = installed_versions(("torch",))["torch"]
    told = line_of("torch", torch=version)
    assert on_init and on_new_group
    assert default_s in (None, told.default_s), "a torch without NCCL does not say it"
    assert has_public == ("dist.set_timeout" in told.note)
    assert has_private or has_public


def test_transformers_takes_seconds_and_defaults_to_1800(ask: Callable[[str, str], Any]) -> None:
    given = ["--output_dir", "x", *line_of("transformers").line.split()]
    code = (
        "from transformers import HfArgumentParser, TrainingArguments\n"
        f"a, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses({given})\n"
        "print(json.dumps([a.ddp_timeout_delta.total_seconds(), TrainingArguments('x').ddp_timeout]))"
    )
    assert ask("transformers", code) == [1740, line_of("transformers").default_s]


def test_accelerate_takes_a_timedelta_and_defaults_to_10_minutes_on_nccl(ask: Callable[[str, str], Any]) -> None:
    code = (
        "from accelerate.utils import InitProcessGroupKwargs\n"
        f"given = {line_of('accelerate').line}\n"
        "print(json.dumps([given.timeout.total_seconds(), InitProcessGroupKwargs().timeout.total_seconds()]))"
    )
    assert ask("accelerate", code) == [1740, line_of("accelerate").default_s]


def test_lightning_takes_a_timedelta_in_every_strategy_that_is_named(ask: Callable[[str, str], Any]) -> None:
    names = ["DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy"]
    code = (
        "import lightning.pytorch.strategies as s\n"
        f"found = [inspect.signature(getattr(s, name).__init__).parameters for name in {names}]\n"
        "print(json.dumps([['timeout' in each for each in found], found[0]['timeout'].default.total_seconds()]))"
    )
    told = line_of("lightning")
    assert all(name in told.line + told.note for name in names)
    assert ask("lightning", code) == [[True] * 4, told.default_s]


def test_deepspeed_reads_minutes_and_has_the_default_that_is_told(ask: Callable[[str, str], Any]) -> None:
    if not installed_versions(("deepspeed",)):
        pytest.skip("deepspeed is not installed; it builds from source only, so that CI has none")
    code = (
        "import os, importlib; import deepspeed.constants as c; given = c.default_pg_timeout.total_seconds()\n"
        "del os.environ['DEEPSPEED_TIMEOUT']; importlib.reload(c)\n"
        "print(json.dumps([given, c.default_pg_timeout.total_seconds()]))"
    )
    assert line_of("deepspeed").line == "export DEEPSPEED_TIMEOUT=29"
    assert ask("deepspeed", code) == [29 * 60, deepspeed_default_s(installed_versions(("deepspeed",)))]


def test_torchrun_waits_for_other_nodes_as_long_as_join_timeout_says(tmp_path: Any) -> None:
    start = line_of("torchrun").line.replace("=660", "=3").replace("...", "--rdzv-endpoint 127.0.0.1:0 --nnodes 2 x.py")
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *start.split()[1:]],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert ran.returncode != 0
    assert "RendezvousTimeoutError" in ran.stderr, ran.stderr[-2000:]
