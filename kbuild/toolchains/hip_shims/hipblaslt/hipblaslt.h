// Written by kbuild: what Torch's headers name of hipBLASLt, for builds without it. No function.
#pragma once
typedef void *hipblasLtHandle_t;
