
// A tensor of Torch for a view; `root` is the tensor with the memory.
void make_tensor(const char* op, const char* name, Tensor& view, const Tensor& root) {
  if (view.handle != nullptr || view.sizes == nullptr) return;
  const Int offset = (view.data - root.data) / root.itemsize();
  if (KBUILD_UNLIKELY(aoti_torch__reinterpret_tensor(root.handle, view.dim, view.sizes, view.strides, offset,
                                                     &view.handle))) {
    torch_failed(op, "make the view", name);
  }
}
