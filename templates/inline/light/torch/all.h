// See <torch/types.h> beside this file.
#pragma once

#include <torch/types.h>
