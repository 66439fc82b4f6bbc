// The headers of operators include <ATen/DeviceGuard.h>, which is large, and use nothing of it.
#pragma once

#ifdef KBUILD_INLINE_ALL
#include_next <ATen/DeviceGuard.h>
#endif
