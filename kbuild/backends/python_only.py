"""Backends that have no compiler here: their kernels are Python files."""

from __future__ import annotations

from kbuild.backends.base import BACKENDS, Backend
from kbuild.project.config.model import BackendGeneral


class NeuronGeneral(BackendGeneral):
    """The `[general.neuron]` table."""


class TpuGeneral(BackendGeneral):
    """The `[general.tpu]` table."""


@BACKENDS.add
class Cann(Backend):
    """Huawei NPUs."""

    name = "cann"
    other_names = ("ascend", "npu")
    title = "CANN"
    in_client = True


@BACKENDS.add
class Neuron(Backend):
    """AWS Trainium and Inferentia."""

    name = "neuron"
    other_names = ("trainium", "inferentia")
    title = "Neuron"
    in_client = True
    general = NeuronGeneral


@BACKENDS.add
class Tpu(Backend):
    """Google TPUs."""

    name = "tpu"
    title = "TPU"
    in_client = True
    general = TpuGeneral
