"""Functions that were compiled ahead of time, for arrays of any library. Written by kbuild."""

import math as _math

from ._ops import _check, _compiling, _empty, _has_operators, _of_torch, _on_meta, _operators
from ._ops import _optional, _recording, _schemas, _see, _several, _sm_count, _tensors
from ._ops import _transforming
from ._ops import module as _module
from ._ops import ops as _ops

_type = type
