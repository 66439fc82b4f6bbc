// The headers of operators include <ATen/TensorUtils.h>, which is large, and use nothing of it.
#pragma once

#ifdef KBUILD_INLINE_ALL
#include_next <ATen/TensorUtils.h>
#endif
