"""The classes and functions that a checkpoint's pickle may name: those that only create values (110).

A pickle may name any function and have it called when it is read, so a writer to the folder could run code in
every job that starts from it. torch.load has been as strict since 2.6; names that a script gives to
`torch.serialization.add_safe_globals` are allowed here, too.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import torch

_NAMES = {
    "builtins": "set frozenset complex slice range bytearray bytes list dict tuple int float bool str object",
    "collections": "OrderedDict defaultdict deque Counter",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "uuid": "UUID",
    "pathlib": "Path PosixPath PurePath PurePosixPath",
    "argparse": "Namespace",
    "types": "SimpleNamespace",
    "copyreg": "_reconstructor",
    "_codecs": "encode",
    "torch": "Size device Tensor Generator",
    "torch._utils": "_rebuild_parameter _rebuild_parameter_with_state _rebuild_tensor _rebuild_tensor_v2"
    " _rebuild_tensor_v3 _rebuild_qtensor _rebuild_sparse_tensor _rebuild_meta_tensor_no_storage"
    " _rebuild_nested_tensor _rebuild_wrapper_subclass _rebuild_device_tensor_from_numpy"
    " _rebuild_device_tensor_from_cpu_tensor",
    "torch.nn.parameter": "Parameter Buffer UninitializedParameter UninitializedBuffer",
    "torch.serialization": "_get_layout",
    "torch.storage": "TypedStorage UntypedStorage",
    "numpy": "ndarray dtype",
    "numpy.core.multiarray": "_reconstruct scalar",
    "numpy._core.multiarray": "_reconstruct scalar",
    "numpy.core.numeric": "_frombuffer",
    "numpy._core.numeric": "_frombuffer",
    "numpy.random._pickle": "__generator_ctor __bit_generator_ctor __randomstate_ctor",
    "numpy.random._pcg64": "PCG64 PCG64DXSM",
    "numpy.random._mt19937": "MT19937",
    "numpy.random._philox": "Philox",
    "numpy.random._sfc64": "SFC64",
    "numpy.random.bit_generator": "SeedSequence __pyx_unpickle_SeedSequence",
    "pathlib._local": "Path PosixPath PurePath PurePosixPath",
}
_ALLOWED = {(module, name) for module, names in _NAMES.items() for name in names.split()}
_VALUES_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


class UnknownNameError(Exception):
    """The pickle names a function or class that is not allowed; the message says what to do."""


def check(module: str, name: str) -> None:
    """Raise UnknownNameError if a checkpoint may not name this."""
    allowed = (
        (module, name) in _ALLOWED
        or (module == "torch.storage" and name == "_load_from_bytes")
        or (module == "torch" and isinstance(getattr(torch, name, None), _VALUES_OF_TORCH))
        or (module == "numpy.dtypes" and name.isidentifier() and name.endswith("DType"))
        or (module, name) in _allowed_by_script()
    )
    if not allowed:
        raise UnknownNameError(
            f"{module}.{name} is not taken from a checkpoint, as its code would run: let state_dict() give plain values"
            f" and tensors, or call torch.serialization.add_safe_globals([{name}]) before"
        )


def find(module: str, name: str) -> Any:
    """The object of that name. Raises UnknownNameError, ImportError, AttributeError."""
    check(module, name)
    if (module, name) == ("torch.storage", "_load_from_bytes"):
        return _load_from_bytes  # torch's function accepts any name
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _load_from_bytes(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


def _allowed_by_script() -> set[tuple[str, str]]:
    allowed: list[Any] = getattr(torch.serialization, "get_safe_globals", list)()
    named = (each for each in allowed if not isinstance(each, tuple))
    return {(each.__module__, each.__qualname__) for each in named if hasattr(each, "__qualname__")}
