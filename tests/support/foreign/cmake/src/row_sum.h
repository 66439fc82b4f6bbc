#pragma once
#include <ATen/ATen.h>
at::Tensor row_sum(const at::Tensor &x);
