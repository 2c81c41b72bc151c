"""Bytes that autograd keeps for backward, seen from outside every recomputed region.

Covers what goes through saved-tensor hooks: tensors that a custom function keeps as plain
attributes on its context are invisible here, and count in the peak alone.
"""

from collections.abc import Iterable
from types import TracebackType

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..plans.apply import hearing_kept
from ..workloads.update import storage_of


class SavedBytes:
    """Counts saved tensors while it is entered, in two ways; each entry starts from zero.

    `distinct`: once per storage, the storages of `own` left out. `naive`: once per data pointer,
    everything included, as a first attempt with `saved_tensors_hooks` usually counts.
    """

    def __init__(self, own: Iterable[Tensor]) -> None:
        self.addresses: set[int] = set()
        """Where the storages kept lie in memory; fake tensors lie nowhere."""
        self._own = {storage_of(tensor) for tensor in own}
        self._storages: dict[int, int] = {}
        self._pointers: dict[tuple[int, int], int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda packed: packed)

    @property
    def distinct(self) -> int:
        """Bytes of the distinct storages kept, parameters and inputs left out."""
        return sum(self._storages.values())

    @property
    def naive(self) -> int:
        """Bytes of the tensors kept, once per data pointer."""
        return sum(self._pointers.values())

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = storage_of(tensor)
        self._pointers[storage, int(tensor.storage_offset())] = tensor.numel() * tensor.element_size()
        if storage not in self._own:
            self._storages[storage] = tensor.untyped_storage().nbytes()
            if not isinstance(tensor, FakeTensor):
                self.addresses.add(tensor.untyped_storage().data_ptr())
        return tensor

    def __enter__(self) -> "SavedBytes":
        self._storages.clear()
        self._pointers.clear()
        self.addresses.clear()
        self._hooks.__enter__()
        self._selective = hearing_kept(self._pack)
        self._selective.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._selective.__exit__(kind, error, trace)
        self._hooks.__exit__(kind, error, trace)
