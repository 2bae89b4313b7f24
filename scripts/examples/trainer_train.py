"""Give the Trainer of transformers the timeout of the sourced preflight.env, or one computed for the model."""

from transformers import TrainingArguments

import preflight

timeout = preflight.pg_timeout()
seconds = int(timeout.total_seconds()) if timeout else preflight.safe_timeout("7B", strategy="fsdp").pg_timeout_s
arguments = TrainingArguments("out", ddp_timeout=seconds)
print(f"{arguments.device}: ddp_timeout {arguments.ddp_timeout}", flush=True)
