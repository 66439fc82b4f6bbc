/* libtorch_cuda.so of a Torch that has no GPU: the one function that launchers ask it for. */
#include <stdint.h>

static uintptr_t streams[16];

void fake_use_stream(int device, uintptr_t stream) { streams[device] = stream; }

int aoti_torch_get_current_cuda_stream(int32_t device, void **stream) {
  *stream = (void *)streams[device];
  return 0;
}
