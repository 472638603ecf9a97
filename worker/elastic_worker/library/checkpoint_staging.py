"""Copies tensors to host memory that is reused, so that repeated saves allocate nothing."""

from __future__ import annotations

from typing import Any

import torch

from elastic_worker.library.checkpoint_state import Tensors


class Staging:
    """A host copy of a state. Finish reading it before the next `copy`."""

    def __init__(self) -> None:
        self._buffers: Tensors = {}

    def copy(self, tensors: Tensors) -> Tensors:
        """Return contiguous copies of the present values by name. Frees the memory of names that are left out first."""
        self._buffers = {name: buffer for name, buffer in self._buffers.items() if name in tensors}
        with torch.no_grad():
            for name, tensor in tensors.items():
                self._buffer(name, tensor).copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
        return dict(self._buffers)

    def _buffer(self, name: str, tensor: Any) -> Any:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            self._buffers.pop(name, None)
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
            self._buffers[name] = buffer
        return buffer
