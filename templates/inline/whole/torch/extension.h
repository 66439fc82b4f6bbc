// <torch/extension.h> without pybind11: bindings are Torch ops.
#pragma once

#include <torch/all.h>
