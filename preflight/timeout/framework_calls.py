"""The call, option or variable that sets the timeout in each framework.

See docs/dev/nccl-facts.md, section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping

# {s} seconds, {m} minutes.
CALLS = {
    "torch": "init_process_group(..., timeout=timedelta(seconds={s}))",
    "transformers": "--ddp_timeout {s}",
    "accelerate": "InitProcessGroupKwargs(timeout=timedelta(seconds={s}))",
    "deepspeed": "export DEEPSPEED_TIMEOUT={m}",
    "lightning": "DDPStrategy(timeout=timedelta(seconds={s}))",
    "megatron": "--distributed-timeout-minutes {m}",
    "torchtitan": "--comm.train_timeout_seconds {s}",
}
# The same with where it goes, for a reader who has only the failed run's log.
FRAMEWORK_SETTING: Mapping[str, str] = {
    "transformers": "training arguments: " + CALLS["transformers"],
    "accelerate": f"Accelerator(kwargs_handlers=[{CALLS['accelerate']}])  "
    "# from accelerate.utils import InitProcessGroupKwargs",
    "deepspeed": CALLS["deepspeed"] + "   # minutes",
    "lightning": CALLS["lightning"] + "   # FSDPStrategy and DeepSpeedStrategy take it too",
    "megatron": CALLS["megatron"],
    "torchtitan": CALLS["torchtitan"],
    "mmengine": "env_cfg = dict(dist_cfg=dict(backend='nccl', timeout={s}))",
    "torch": "torch.distributed." + CALLS["torch"],
}
