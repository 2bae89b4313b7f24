"""A small real training job of four ranks on the CPU, one of which hangs in the way that is asked for.

    python train.py WAY DIR     one rank; RANK and the others are in its environment
    fork_server.py              forks the ranks of many jobs, since importing torch takes longer than all else

What a rank waits for is in DIR: a FIFO that somebody opens, a lock that somebody holds, a file `go_on` that appears.
Each rank that ends writes the digest of its weights.
"""

import ctypes
import fcntl
import hashlib
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

way, place = sys.argv[1], Path(sys.argv[2])
WORLD, STEPS, AT = 4, 6, 3
# The kind of job, and who hangs.
WAYS = {
    "save": ("plain", 2), "evaluation": ("ddp", 0), "spin": ("plain", 1), "file_lock": ("plain", 0),
    "gil": ("plain", 3), "thread_lock": ("ddp", 1), "import": ("plain", 2), "compile": ("plain", 0),
    "other_collective": ("plain", 2), "stopped": ("ddp", 1), "data_worker": ("loader", 3), "dead": ("loader", 3),
    "sharded_save": ("fsdp", 0), "trainer_save": ("trainer", 0), "start": ("plain", 3), "slow": ("ddp", 1),
    "path": ("plain", 2), "plain": ("plain", -1), "ddp": ("ddp", -1), "loader": ("loader", -1), "fsdp": ("fsdp", -1),
    "trainer": ("trainer", -1),
}  # fmt: skip
kind, culprit = WAYS[way]


def own_rank():
    """Return this rank's number."""
    return int(os.environ["RANK"])


def go_on():
    """Tell whether what hangs may go on."""
    return (place / "go_on").exists()


def say_hung():
    """Tell the test that the next thing hangs."""
    (place / "hung").touch()


def save_checkpoint(model):
    """Write into a FIFO: as slow as whoever reads it."""
    say_hung()
    with open(place / "checkpoint.pt", "wb") as file:
        torch.save(model.state_dict(), file)


def evaluate(_):
    """Take long on this rank only."""
    end = place / "go_on"
    say_hung()
    while not os.path.exists(end):  # not go_on(): a look may meet the rank in it
        time.sleep(0.01)


def prepare_batch(_):
    """Compute for ever in one line, which calls no other function of Python: a look must never meet another line."""
    end = str(place / "go_on")
    say_hung()
    while sum(range(1_000_000)) and not os.access(end, os.F_OK):
        pass


def download(_):
    """Wait for whoever downloads the same."""
    say_hung()
    with open(place / "download.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def call_extension(_):
    """Wait in native code that keeps the GIL, as a bad extension does."""
    descriptor = os.open(place / "native", os.O_RDWR)
    say_hung()
    ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(1), 1)


def wait_for_thread(_):
    """Wait for a lock that a thread holds."""
    lock, is_held = threading.Lock(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            evaluate(None)

    threading.Thread(target=hold, name="holder").start()
    is_held.wait()
    lock.acquire()
    lock.release()


def import_plugin(_):
    """Import a module whose file is slow."""
    (place / "plugin.py").write_text(f"open({str(place / 'shard')!r}).read()\n")
    sys.path.insert(0, str(place))
    say_hung()
    importlib.import_module("plugin")


def compile_step(_):
    """Compile with a compiler that does not end."""
    torch._inductor.config.cpp.cxx = (str(place / "c++"),)
    torch._inductor.config.compile_threads = 1
    torch.compile(lambda x: torch.sin(x) + 1)(torch.ones(8))


def call_another(_):
    """Call another collective than the other ranks."""
    say_hung()
    dist.broadcast(torch.ones(4), 0)


def save_sharded(model):
    """Meet the others writing a checkpoint that only this rank has entered, as `if rank == 0:` around one does."""
    weights = {name: local(weight).clone() for name, weight in model.state_dict().items()}
    say_hung()
    dist.barrier()
    torch.save(weights, place / "sharded.pt")


def wait_for_cut(_):
    """Give the test time to cut the network, and go on into the next collective."""
    say_hung()
    while not (place / "cut").exists():
        time.sleep(0.01)


def stop(_):
    """Be stopped, as by Ctrl-Z or a debugger."""
    say_hung()
    os.kill(os.getpid(), signal.SIGSTOP)


DISTURB = {
    "save": save_checkpoint, "evaluation": evaluate, "spin": prepare_batch, "file_lock": download,
    "gil": call_extension, "thread_lock": wait_for_thread, "import": import_plugin, "compile": compile_step,
    "other_collective": call_another, "stopped": stop, "path": wait_for_cut, "sharded_save": save_sharded,
}  # fmt: skip


class Rows(torch.utils.data.Dataset):
    """Twelve batches; on the culprit one row takes what a FIFO gives."""

    def __len__(self):
        return 2 * STEPS

    def __getitem__(self, i):
        if way in ("data_worker", "dead") and own_rank() == culprit and i == 7:
            self.read_shard()
        return torch.full((4,), float(i))

    def read_shard(self):
        """Read from a storage that does not answer."""
        say_hung()
        with open(place / "shard", "rb") as file:
            file.read()


def disturb(step, model):
    """Hang, where it is this rank's turn."""
    if way == "slow" and own_rank() == culprit and not go_on():
        say_hung()
        time.sleep(0.5)
    elif step == AT and own_rank() == culprit and way in DISTURB:
        DISTURB[way](model)


def train(model, batches, reduce):
    """Train for some steps."""
    step = 0
    while step < STEPS or (way == "slow" and not is_over()):
        for batch in batches():
            model.zero_grad()
            loss = ((model(batch) - 1) ** 2).mean()
            loss.backward()
            reduce(model)
            update(model)
            sys.stdout.write(f"step {step} loss {loss.item():.4f}\n")
            sys.stdout.flush()
            disturb(step, model)
            step += 1
    return model


def update(model):
    """Descend by hand: torch.optim imports the compiler, which takes seconds."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.sub_(weight.grad, alpha=1e-3)


def is_over():
    """Tell whether all ranks know that a slow job may end."""
    flag = torch.tensor([float(go_on())])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag)


def all_reduce_gradients(model):
    """Average the gradients by hand."""
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= WORLD


def run_trainer():
    """Train with the Hugging Face Trainer, whose callback takes long writing a checkpoint."""
    import transformers  # noqa: PLC0415

    class Slow(transformers.TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            if way == "trainer_save" and own_rank() == culprit:
                end = place / "go_on"
                say_hung()
                while not os.path.exists(end):  # as in evaluate
                    time.sleep(0.01)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(4, 1)

        def forward(self, x):
            return {"loss": ((self.line(x) - 1) ** 2).mean()}

    model = Model()
    arguments = transformers.TrainingArguments(
        str(place / "trainer"), max_steps=STEPS, save_steps=AT, report_to=[], use_cpu=True, disable_tqdm=True,
        logging_strategy="no", dataloader_num_workers=0, per_device_train_batch_size=1,
    )  # fmt: skip
    rows = [{"x": torch.full((4,), float(i))} for i in range(64)]
    transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[Slow()]).train()
    return model


def main():
    """Run one rank."""
    rank = own_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if kind != "trainer":
        dist.init_process_group("gloo")
    few = lambda: iter([torch.full((4,), float(i + rank)) for i in range(STEPS)])  # noqa: E731
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    if kind == "trainer":
        model = run_trainer()
    elif kind == "ddp":
        train(torch.nn.parallel.DistributedDataParallel(model), few, lambda _: None)
    elif kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        train(fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,))), few, lambda _: None)
    elif kind == "loader":
        loader = torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2)
        train(model, lambda: loader, all_reduce_gradients)
    else:
        train(model, few, all_reduce_gradients)
    digest = hashlib.sha256(
        b"".join(
            p.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            for p in map(local, model.parameters())
        )
    ).hexdigest()
    (place / f"result.{rank}").write_text(digest)
    dist.barrier()
    dist.destroy_process_group()


def local(weight):
    """Return this rank's part of a weight."""
    return weight.to_local() if hasattr(weight, "to_local") else weight


if __name__ == "__main__":
    main()
