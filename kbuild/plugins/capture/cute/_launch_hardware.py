"""Answers to what an author's host code asks about the GPU."""

from __future__ import annotations

import ctypes
import enum
from dataclasses import dataclass
from functools import cache
from typing import Any


@enum.unique
class Arch(enum.Enum):
    """`cutlass.base_dsl.enums.Arch`: major, minor, and the feature's letter."""

    sm_80, sm_86, sm_87, sm_89 = (8, 0, ""), (8, 6, ""), (8, 7, ""), (8, 9, "")
    sm_90, sm_90a = (9, 0, ""), (9, 0, "a")
    sm_100, sm_100a, sm_100f = (10, 0, ""), (10, 0, "a"), (10, 0, "f")
    sm_103, sm_103a, sm_103f = (10, 3, ""), (10, 3, "a"), (10, 3, "f")
    sm_110, sm_110a, sm_110f = (11, 0, ""), (11, 0, "a"), (11, 0, "f")
    sm_120, sm_120a, sm_120f = (12, 0, ""), (12, 0, "a"), (12, 0, "f")
    sm_121, sm_121a, sm_121f = (12, 1, ""), (12, 1, "a"), (12, 1, "f")

    @property
    def major(self) -> int:
        """The first number of the capability."""
        return self.value[0]

    @property
    def minor(self) -> int:
        """The second number of the capability."""
        return self.value[1]

    def is_family_of(self, other: Arch) -> bool:
        """True if this arch runs what is written for the family of the other one."""
        return self.major == other.major and self >= other

    def __lt__(self, other: Arch) -> bool:
        return self.value < other.value

    def __le__(self, other: Arch) -> bool:
        return self.value <= other.value

    def __gt__(self, other: Arch) -> bool:
        return self.value > other.value

    def __ge__(self, other: Arch) -> bool:
        return self.value >= other.value


class HardwareInfo:
    """`cutlass.utils.HardwareInfo`, with the answers of Torch and of the driver."""

    def __init__(self, device_id: int = 0) -> None:
        import torch

        self._device, self._properties = device_id, torch.cuda.get_device_properties(device_id)

    def get_device_multiprocessor_count(self) -> int:
        """The number of multiprocessors."""
        return int(self._properties.multi_processor_count)

    def get_l2_cache_size_in_bytes(self) -> int:
        """The size of the L2 cache."""
        return int(self._properties.L2_cache_size)

    def get_max_active_clusters(self, cluster_size: int) -> int:
        """The number of clusters of so many blocks that run at once, one block on a processor."""
        return _active_clusters(self._device, cluster_size)


class CurrentDsl:
    """`BaseDSL._get_dsl()`."""

    @staticmethod
    def get_arch_enum() -> Arch:
        """The arch of the current device, with the features that code for it uses."""
        import torch

        major, minor = torch.cuda.get_device_capability()
        return Arch((major, minor, "a" if major >= 9 else ""))  # noqa: PLR2004

    @staticmethod
    def arch_name() -> str:
        """The current device's arch as recordings have it, such as `9.0a`."""
        major, minor, letter = CurrentDsl.get_arch_enum().value
        return f"{major}.{minor}{letter}"


_SMEM_KIB = {"80": 163, "86": 99, "87": 163, "89": 99, "90": 227, "100": 227, "103": 227,
             "110": 227, "120": 99, "121": 99}  # fmt: skip
"""Arch -> KiB of shared memory that a block can have."""


def smem_capacity(compute_capability: str | None = None) -> int:
    """`cutlass.utils.get_smem_capacity_in_bytes`."""
    number = (compute_capability or CurrentDsl.get_arch_enum().name).removeprefix("sm_")
    return _SMEM_KIB[number.rstrip("af")] * 1024


@dataclass(frozen=True)
class NamedBarrier:
    """`cutlass.pipeline.NamedBarrier`, of which the host code knows the numbers."""

    barrier_id: int
    num_threads: int


NamedBarrier.__module__ = "cutlass.pipeline"  # the DSL's dataclasses are described by their names

_EMPTY_KERNEL = b"""
.version 7.8
.target sm_90
.address_size 64
.visible .entry empty() { ret; }
"""
_MAX_SHARED_PER_BLOCK = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_ANY_CLUSTER_SIZE = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`, whose value has 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def _active_clusters(device: int, size: int) -> int:
    """Ask the driver about a kernel that does nothing, with all the shared memory of a block.

    Raises:
        RuntimeError: the driver cannot tell.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    context, module, function = (ctypes.c_void_p() for _ in range(3))
    shared, count = ctypes.c_int(), ctypes.c_int()

    def ask(name: str, *args: Any) -> None:
        if status := getattr(driver, name)(*args):
            raise RuntimeError(f"`{name}` of the CUDA driver failed with status {status}")

    ask("cuInit", 0)
    ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)  # Torch's context
    ask("cuCtxPushCurrent_v2", context)
    ask("cuModuleLoadData", ctypes.byref(module), _EMPTY_KERNEL)
    ask("cuModuleGetFunction", ctypes.byref(function), module, b"empty")
    ask("cuDeviceGetAttribute", ctypes.byref(shared), _MAX_SHARED_PER_BLOCK, device)
    ask("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared)
    ask("cuFuncSetAttribute", function, _ANY_CLUSTER_SIZE, 1)
    cluster = _Attribute(_CLUSTER_DIMENSION, 0, (size, 1, 1))
    config = _LaunchConfig(
        (size, 1, 1), (128, 1, 1), shared.value, None, ctypes.pointer(cluster), 1
    )
    ask("cuOccupancyMaxActiveClusters", ctypes.byref(count), function, ctypes.byref(config))
    ask("cuModuleUnload", module)
    ask("cuCtxPopCurrent_v2", ctypes.byref(context))
    ask("cuDevicePrimaryCtxRelease_v2", device)
    return count.value
