"""Check, then train with Lightning, which starts the ranks from this script: check in the first process only."""

import os
from datetime import timedelta

import lightning
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.strategies import DDPStrategy

import preflight

if "LOCAL_RANK" not in os.environ:
    report = preflight.check()
    report.raise_unless_ready(allow_unknown=True)
    os.environ.update(report.advice.applied_to(os.environ))

strategy = DDPStrategy(timeout=preflight.pg_timeout() or timedelta(minutes=30))
trainer = lightning.Trainer(devices=2, strategy=strategy, max_steps=2, logger=False, enable_checkpointing=False)
trainer.fit(BoringModel())
print(f"rank {trainer.global_rank} of {trainer.world_size}", flush=True)
