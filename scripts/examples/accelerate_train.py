"""Give accelerate the timeout of the sourced preflight.env."""

from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

import preflight

accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=preflight.pg_timeout())])
accelerator.wait_for_everyone()
print(f"rank {accelerator.process_index} of {accelerator.num_processes}", flush=True)
accelerator.end_training()
