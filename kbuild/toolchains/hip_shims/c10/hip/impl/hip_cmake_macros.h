// Written by kbuild: the Torch that these headers are from was built without HIP.
#pragma once
#define C10_HIP_BUILD_SHARED_LIBS
#define C10_CUDA_BUILD_SHARED_LIBS
