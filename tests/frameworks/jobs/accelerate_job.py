"""Two ranks of accelerate; rank 0 saves while rank 1 is already at the next barrier."""

import os
import sys
import time
from datetime import timedelta  # noqa: F401  the line under test names it

from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs  # noqa: F401  as above

accelerator = Accelerator(cpu=True, kwargs_handlers=[eval(os.environ["LINE"])])
accelerator.wait_for_everyone()
if accelerator.is_main_process:
    sys.stdout.write("SAVING\n")
    sys.stdout.flush()
    time.sleep(float(os.environ["SAVE_S"]))
accelerator.wait_for_everyone()
sys.stdout.write(f"\nSURVIVED {accelerator.process_index}\n")
sys.stdout.flush()
accelerator.end_training()
