"""Tensors on simulated GPUs: operations are computed on the CPU, on an alias of the same memory, in stream order.

Imported for its effect (`--backend nccl@tests.simcuda.simtorch` does it in each rank). Allocations, views, copies that
need no kernel and everything of torch.distributed stay torch's own, and so go through the driver in stream order.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.simcuda.places import built

SIMULATED = True
LIBRARY = ctypes.CDLL("libcuda.so.1")
ALLOCATIONS = (
    "empty",
    "empty_strided",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
    "record_stream",
    "is_pinned",
    "_pin_memory",
)
COPIES = ("copy_", "_to_copy", "_local_scalar_dense")
LARGE = 1 << 20  # elements of a product that takes a CPU seconds, a GPU milliseconds
DISTRIBUTED = ("c10d", "_c10d_functional", "symm_mem")


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor of the same memory, shape and strides: simulated device memory is the host's."""
    storage = tensor.untyped_storage()
    found = torch.empty(0, dtype=tensor.dtype)
    if not storage.nbytes():
        return found.new_empty(tensor.shape)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    bytes_of = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    return found.set_(bytes_of, tensor.storage_offset(), tensor.shape, tensor.stride())


class OnTheCpu(TorchDispatchMode):
    """Compute what would be a kernel."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        values, shape = pytree.tree_flatten((args, kwargs))
        tensors = [value for value in values if isinstance(value, torch.Tensor) and value.is_cuda]
        wanted = [torch.device(value) for value in values if isinstance(value, torch.device) and value.type == "cuda"]
        if not (tensors or wanted) or _is_torchs_own(func, args, kwargs):
            return func(*args, **kwargs)
        device = wanted[0] if wanted else tensors[0].device
        if func._schema.name == "aten::_to_copy" and kwargs.get("device") is not None:
            device = torch.device(kwargs["device"])
        # Also the device of a tensor that is made: its memory may be that of one which work in the queue still uses.
        for each in {device, *(tensor.device for tensor in tensors)}:
            if each.type == "cuda":
                torch.cuda.current_stream(each).synchronize()
        aliases: dict[int, torch.Tensor] = {}
        kept = []  # an id is only its own while the object lives

        def down(value: Any) -> Any:
            if isinstance(value, torch.device):
                return torch.device("cpu")
            if not (isinstance(value, torch.Tensor) and value.is_cuda):
                return value
            same = alias(value)
            kept.append(same)
            aliases[id(same)] = value
            return same

        def up(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) in aliases:
                return aliases[id(value)]
            if device.type != "cuda":
                return value
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            alias(made).copy_(value)
            return made

        if func is torch.ops.aten.arange.default and args[0] and kwargs.get("dtype") is torch.int32:
            made = torch.empty(args[0], dtype=torch.int32, device=device)
            torch.arange(args[0], out=alias(made))  # not made on the CPU and copied: it is large, and often wanted
            return made
        if func is torch.ops.aten.remainder_.Scalar and args[0].dtype is torch.int32 and args[0].is_contiguous():
            LIBRARY.simcuda_remainder(ctypes.c_void_p(args[0].data_ptr()), ctypes.c_long(args[0].numel()), int(args[1]))
            return args[0]
        computed_args, computed_kwargs = pytree.tree_unflatten([down(value) for value in values], shape)
        if func is torch.ops.aten.mm.out and computed_kwargs["out"].numel() > LARGE:
            return up(_remembered(func, *computed_args, **computed_kwargs))
        return pytree.tree_map(up, func(*computed_args, **computed_kwargs))


def _remembered(func: Callable[..., Any], left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return the product of two matrices, from a file where the same two, bit for bit, were multiplied before."""
    digest = hashlib.blake2b(f"{left.dtype} {left.shape} {right.shape}".encode())
    for each in (left, right):
        digest.update(_bytes(each.contiguous()))
    built("products").mkdir(exist_ok=True)
    file = os.open(built("products") / digest.hexdigest()[:32], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        room = _bytes(out)
        if os.preadv(file, [room], 0) != len(room):
            _multiply(func, left, right, out)
            os.pwrite(file, room, 0)
    finally:
        os.close(file)
    return out


def _multiply(func: Callable[..., Any], left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """Multiply in float32: without instructions for bfloat16 a CPU takes 500 times longer. The bits are the same.

    preflight's factors are integers up to 31, so that float32 holds every sum of a row of 8,192 exactly.
    """
    if out.dtype is torch.bfloat16:
        out.copy_(func(left.float(), right.float(), out=torch.empty(out.shape)))
    else:
        func(left, right, out=out)


def _bytes(tensor: torch.Tensor) -> memoryview:
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def _is_torchs_own(func: Any, args: Any, kwargs: Any) -> bool:
    if func.namespace in DISTRIBUTED:
        return True
    schema = func._schema
    name = schema.name.split("::")[-1]
    views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    return (
        views
        or name in ALLOCATIONS
        or name == "_local_scalar_dense"
        or (name == "copy_" and _needs_no_kernel(*args[:2]))
    )


def _needs_no_kernel(to: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether torch copies by cudaMemcpyAsync alone."""
    same = to.dtype == source.dtype and to.shape == source.shape
    return same and to.is_contiguous() and source.is_contiguous()


mode: Any = OnTheCpu()
mode.__enter__()
