// Written by kbuild: what Torch's headers name of hipSPARSE, for builds without it. No function.
#pragma once
typedef void *hipsparseHandle_t;
typedef enum { HIPSPARSE_STATUS_SUCCESS = 0 } hipsparseStatus_t;
