"""Two ranks of the Hugging Face Trainer; rank 0 takes long in the save that comes after the second step."""

import os
import sys
import time

import torch
import torch.distributed as dist
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    """A line: the smallest thing that Trainer trains."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x, labels=None):
        """Return what Trainer wants: a loss."""
        y = self.line(x)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


class SlowSave(TrainerCallback):
    """Rank 0's checkpoint goes to a slow disk."""

    def on_save(self, args, state, control, **kwargs):
        """Wait on rank 0, as a slow disk would."""
        if dist.get_rank() == 0 and state.global_step == 2:
            sys.stdout.write("SAVING\n")
            sys.stdout.flush()
            time.sleep(float(os.environ["SAVE_S"]))

    def on_step_begin(self, args, state, control, **kwargs):
        """Meet in the group that Trainer made. Without a GPU it makes one, but wraps no model in DDP to meet in it."""
        dist.all_reduce(torch.ones(1))


# Not --use_cpu: with it transformers 5.23 does not pass ddp_timeout on.
out = os.path.join(os.environ["OUT"], os.environ["RANK"])
given = ["--output_dir", out, "--ddp_backend", "gloo", "--report_to", "none", "--dataloader_pin_memory", "false"]
given += ["--max_steps", "3", "--save_strategy", "steps", "--save_steps", "2", "--save_total_limit", "1"]
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([*given, *os.environ["LINE"].split()])
rows = [{"x": torch.tensor([float(i)]), "labels": torch.tensor([2.0 * i])} for i in range(64)]
Trainer(Model(), arguments, train_dataset=rows, callbacks=[SlowSave()]).train()
sys.stdout.write(f"\nSURVIVED {dist.get_rank()}\n")
sys.stdout.flush()
