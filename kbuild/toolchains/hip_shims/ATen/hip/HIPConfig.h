// Written by kbuild: the Torch that these headers are from was built without HIP.
#pragma once
#define AT_CUDNN_ENABLED() 0
#define AT_HIPSPARSELT_ENABLED() 0
#define AT_ROCM_ENABLED() 1
#define AT_MAGMA_ENABLED() 1
#define NVCC_FLAGS_EXTRA ""
