"""Two ranks of Lightning; rank 0 takes long in writing the checkpoint after the second step."""

import functools
import os
import sys
import time
from datetime import timedelta  # noqa: F401  the line under test names it

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy  # noqa: F401  as above


class Model(lightning.LightningModule):
    """A line: the smallest thing that Lightning trains."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        """Return the loss."""
        return ((self.line(batch) - 2 * batch) ** 2).mean()

    def configure_optimizers(self):
        """Return the plainest one."""
        return torch.optim.SGD(self.parameters(), lr=1e-6)

    def on_save_checkpoint(self, _):
        """Wait on rank 0, as a slow disk would."""
        if self.global_rank == 0:
            sys.stdout.write("SAVING\n")
            sys.stdout.flush()
            time.sleep(float(os.environ["SAVE_S"]))


save = ModelCheckpoint(os.environ["OUT"], every_n_train_steps=2, save_top_k=1)
Trainer = functools.partial(
    lightning.Trainer, accelerator="cpu", devices=2, max_steps=3, logger=False, callbacks=[save],
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer = eval(os.environ["LINE"])
rows = torch.utils.data.DataLoader([torch.tensor([float(i)]) for i in range(64)], batch_size=4, num_workers=0)
trainer.fit(Model(), rows)
sys.stdout.write(f"\nSURVIVED {trainer.global_rank}\n")
sys.stdout.flush()
