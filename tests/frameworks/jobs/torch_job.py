"""Two ranks of plain torch; rank 0 "saves" while rank 1 is already in the next all_reduce."""

import os
import sys
import time
from datetime import timedelta  # noqa: F401  the line under test names it

import torch
import torch.distributed as dist

eval(os.environ["LINE"].replace("...", '"gloo"'))
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 0:
    sys.stdout.write("SAVING\n")
    sys.stdout.flush()
    time.sleep(float(os.environ["SAVE_S"]))
dist.all_reduce(torch.ones(1))
sys.stdout.write(f"\nSURVIVED {rank}\n")
sys.stdout.flush()
dist.destroy_process_group()
