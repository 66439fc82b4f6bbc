// Written by kbuild: what Torch's headers name of hipBLAS, for builds without it. No function.
#pragma once
typedef void *hipblasHandle_t;
typedef enum { HIPBLAS_STATUS_SUCCESS = 0 } hipblasStatus_t;
