// Written by kbuild: what Torch's headers name of hipSOLVER, for builds without it. No function.
#pragma once
typedef void *hipsolverHandle_t;
typedef hipsolverHandle_t hipsolverDnHandle_t;
typedef enum { HIPSOLVER_STATUS_SUCCESS = 0 } hipsolverStatus_t;
