"""Fork the ranks of jobs from a process that has imported torch and the frameworks once.

Reads `WAY DIR PORT RANK,RANK,... shown|hidden` per line, writes the ranks' pids; at the end of its input it ends.
Where they are to be shown, the ranks' variables stand in /proc/PID/environ as a launcher's exec would have put them:
this process starts with places for them, and each rank writes its own over them. Hidden ones are set as Ray does it.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo
import torch._inductor.config  # noqa: F401  the job sets its compiler there
import transformers

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
PLACEHOLDER = "x" * 15
transformers.Trainer  # noqa: B018  loads what it needs
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_void_p


def serve():
    """Fork until nothing is asked for any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is gone at once
    for line in sys.stdin:
        way, folder, port, ranks, how = line.split()
        pids = [fork_rank(way, folder, port, rank, how == "shown") for rank in ranks.split(",")]
        sys.stdout.write(" ".join(map(str, pids)) + "\n")
        sys.stdout.flush()


def fork_rank(way, folder, port, rank, is_shown):
    """Fork one rank and return its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become_rank(way, folder, dict(zip(NAMES, (rank, rank, "4", "4", "127.0.0.1", port), strict=True)), is_shown)
            code = 0
        except BaseException:  # noqa: BLE001  it goes into the rank's own log
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            (Path(folder) / f"ended.{rank}").write_text(str(code))
            os._exit(code)
    return pid


def become_rank(way, folder, values, is_shown):
    """Run the job's own code as this rank."""
    log = os.open(f"{folder}/log.{values['RANK']}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for name, value in values.items():
        start = libc.getenv(name.encode())
        shown = f"{name}={value}".encode() if is_shown else b""
        ctypes.memset(start - len(name) - 1, 0, len(name) + 1 + len(PLACEHOLDER))
        ctypes.memmove(start - len(name) - 1, shown, len(shown))
        os.environ[name] = value
    sys.argv[1:] = [way, folder]
    sys.path.insert(0, str(Path(__file__).parent))
    import train  # noqa: PLC0415  takes its way from the arguments

    train.main()


if __name__ == "__main__":
    serve()
