// ---------------------------------------------------------------------------------------------
// Views: tensors that share memory with others

template <int rank>
struct ViewTensor : Tensor {
  Int own_sizes[rank == 0 ? 1 : rank] = {};
  Int own_strides[rank == 0 ? 1 : rank] = {};
};

[[noreturn]] KBUILD_COLD void beyond(const char* op, const char* name, const char* other, Int first, Int last,
                                     Int count) {
  refuse(op, "the view " + quoted(name) + " has the elements " + std::to_string(first) + " to " +
                 std::to_string(last) + " of " + quoted(other) + ", which has " + std::to_string(count));
}

// The elements between a tensor's first and last, both included.
Int extent_of(const Tensor& tensor) {
  if (tensor.numel == 0) return 0;
  Int last = 0;
  for (Int i = 0; i < tensor.dim; ++i) last += (tensor.sizes[i] - 1) * tensor.strides[i];
  return last + 1;
}

template <int rank>
void place_view(const char* op, const char* name, ViewTensor<rank>& view, const char* other, const Tensor& of,
                Int offset) {
  const Arithmetic checked{"the size of a view"};
  Int numel = 1, last = offset;
  for (int i = 0; i < rank; ++i) {
    const Int size = view.own_sizes[i], stride = view.own_strides[i];
    if (KBUILD_UNLIKELY(size < 0 || stride < 0)) {
      refuse(op, "the view " + quoted(name) + " would have a negative dimension or stride");
    }
    numel = checked.mul(numel, size);
    if (size > 1) last = checked.add(last, checked.mul(size - 1, stride));
  }
  if (numel > 0) {
    const Int count = extent_of(of);
    if (KBUILD_UNLIKELY(offset < 0 || last >= count)) beyond(op, name, other, offset, last, count);
  }
  view.sizes = view.own_sizes;
  view.strides = view.own_strides;
  view.dim = rank;
  view.numel = numel;
  view.dtype = of.dtype;
  view.device = of.device;
  view.data = numel > 0 ? of.data + offset * of.itemsize() : of.data;
}
