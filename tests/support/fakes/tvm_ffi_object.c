/* What a DSL's object is like, for the CPU: a function of TVM-FFI that works on float32.

   out = x * factor + number + (flag ? 100 : 0) + MARK, by index; FAIL makes it fail instead.
   Its code is a library of CuTe DSL's: the first call asks INIT for it, and READY to prepare all devices,
   which the launcher replaces. Device 8 is one that it does not fit. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  int32_t type;
  uint32_t zero;
  union {
    int64_t integer;
    double real;
    void* pointer;
  };
} Any;

typedef struct {
  void* data;
  int32_t device_type, device, dim;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;

void* TVMFFIEnvGetStream(int32_t device_type, int32_t device);
void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count);
void CuteDSLRT_TVMFFISetRaisedCudaError(void (*raise)(const char*, const char**, int32_t), int32_t code);

typedef struct {
  unsigned grid[3], block[3];
  size_t shared;
  void *stream, *attributes;
  unsigned count;
} Config;

/* What `cudaLaunchKernelExC` is called in a joined object. */
int kbuild_aot_launch(const Config* config, const void* kernel, void** arguments);
__attribute__((weak, visibility("hidden"))) int cudaLaunchKernelExC(const Config* config, const void* kernel,
                                                                    void** arguments) {
  (void)kernel, (void)arguments;
  return config->stream == (void*)STREAM ? 0 : 719;
}

/* Not unique on purpose: kernels' own names must not meet. */
int kbuild_aot_helper(int value) { return value + MARK; }

static int wrong(const char* what) {
  const char* parts[] = {"it is ", what, 0, "!"};
  TVMFFIErrorSetRaisedFromCStrParts("ValueError", parts, 4);
  return -1;
}

int INIT(void** library);
int READY(void** library, int32_t device);

static int is_ready[32];

static void* driver(const char* name) { return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name); }

static void event(const char* what, int device) {
  void (*note)(const char*, int) = (void (*)(const char*, int))driver("fake_event");
  note(what, device);
}

int INIT_OWN(void** library) {
  static const char code[] __attribute__((aligned(16))) = "object";
  typedef int (*Load)(void**, const void*, int*, void**, unsigned, int*, void**, unsigned);
  return ((Load)driver("cuLibraryLoadData"))(library, code, 0, 0, 0, 0, 0, 0);
}

int READY_OWN(void** library, int32_t device) {
  event(*library ? "ready" : "nothing", device);
  if (device == 8) return 209;
  is_ready[device] = 1;
  return 0;
}

/* What the runtime does with the first call. */
static int has_code(int device) {
  static void* library;
  if (library == 0) {
    if (INIT(&library) != 0 || library == 0) return 0;
    for (int each = 0; each < 4; ++each) READY(&library, each);
  }
  return is_ready[device];
}

int SYMBOL(void* self, const Any* args, int32_t count, Any* result) {
  Any numbers[3] = {{.type = 3, .real = 1.0}, {.type = 1, .integer = 0}, {.type = 2, .integer = 0}};
  const Tensor *x = 0, *out = 0;
  (void)self, (void)result;
  for (int i = 0; i < count; ++i) {
    if (args[i].zero != 0) return wrong("not padded");
    if (args[i].type == 7) {
      if (x == 0) x = args[i].pointer;
      out = args[i].pointer;
    } else {
      numbers[args[i].type == 3 ? 0 : args[i].type] = args[i];
    }
  }
  if (FAIL == 1) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "it is meant to");
    return -1;
  }
  if (FAIL == 2) {
    CuteDSLRT_TVMFFISetRaisedCudaError(&TVMFFIErrorSetRaisedFromCStrParts, 700);
    return -1;
  }
  if (x->device_type != 2 || x->code != 2 || x->bits != 32 || x->lanes != 1) return wrong("no float32");
  if (!has_code(x->device)) return wrong("not ready for its device");
  if (x->dim != DIM) return wrong("of another rank");
  const int64_t rows = DIM == 2 ? x->shape[0] : 1, columns = x->shape[DIM - 1];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t from = (DIM == 2 ? r * x->strides[0] : 0) + c * x->strides[DIM - 1];
      const int64_t to = (DIM == 2 ? r * out->strides[0] : 0) + c * out->strides[DIM - 1];
      float value = ((const float*)x->data)[from] * (float)numbers[0].real;
      value += (float)numbers[1].integer + (numbers[2].integer ? 100.0f : 0.0f);
      ((float*)out->data)[to] = value + (float)kbuild_aot_helper(0);
    }
  }
  if (TVMFFIEnvGetStream(2, x->device) != (void*)STREAM) return wrong("on another stream");
  const Config none = {{0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0}; /* a launch that is given no stream */
  return kbuild_aot_launch(&none, 0, 0) == 0 ? 0 : wrong("launched on another stream");
}
