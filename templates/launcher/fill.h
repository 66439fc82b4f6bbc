// On the current stream, so that it is captured with the launches. `patterns` are the bits of an element
// by dtype.
void fill(const char* op, const char* name, const Device& device, const Tensor& tensor,
          const uint64_t* patterns) {
  if (tensor.numel == 0) return;
  const OnDevice here(op, device);
  const int size = dtypes[tensor.dtype].itemsize;
  const auto result = set_memory(tensor.data, patterns[tensor.dtype], size, size_t(tensor.numel),
                                 current_stream(op, device.index));
  if (KBUILD_UNLIKELY(result != 0)) driver_failed(op, "give " + quoted(name) + " its value", result);
}
