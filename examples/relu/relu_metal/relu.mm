#include "torch_binding.h"

#include <ATen/mps/MPSStream.h>
#include <c10/util/Exception.h>

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>

// The build turns relu.metal into a header with the compiled library.
#include EMBEDDED_METALLIB_HEADER

namespace {

std::string type_name(const at::TensorBase &x) {
  switch (x.scalar_type()) {
  case at::kFloat:
    return "float";
  case at::kHalf:
    return "half";
  case at::kBFloat16:
    return "bfloat";
  default:
    TORCH_CHECK(false, "relu: unsupported dtype ", x.scalar_type());
  }
}

std::string describe(NSError *error) {
  return error == nil ? "unknown error" : error.localizedDescription.UTF8String;
}

id<MTLComputePipelineState> make_pipeline(id<MTLDevice> device, const std::string &name) {
  NSError *error = nil;
  static id<MTLLibrary> library = EMBEDDED_METALLIB_NAMESPACE::createLibrary(device, &error);
  TORCH_CHECK(library != nil, "relu: cannot load the Metal library: ", describe(error));
  id<MTLFunction> function = [library newFunctionWithName:@(name.c_str())];
  TORCH_CHECK(function != nil, "relu: the Metal library has no function ", name);
  id<MTLComputePipelineState> made = [device newComputePipelineStateWithFunction:function
                                                                           error:&error];
  TORCH_CHECK(made != nil, "relu: cannot make a pipeline for ", name, ": ", describe(error));
  return made;
}

id<MTLComputePipelineState> pipeline(id<MTLDevice> device, const std::string &name) {
  static std::mutex mutex;
  static std::unordered_map<std::string, id<MTLComputePipelineState>> made;
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = made.find(name);
  if (found == made.end()) {
    found = made.emplace(name, make_pipeline(device, name)).first;
  }
  return found->second;
}

// The storage of an MPS tensor is its MTLBuffer.
id<MTLBuffer> buffer_of(const at::TensorBase &tensor) {
  return __builtin_bit_cast(id<MTLBuffer>, tensor.storage().data());
}

// Runs `function` once per element, with the tensors as its buffers.
void launch(const std::string &function, std::initializer_list<const at::TensorBase *> tensors) {
  const at::TensorBase &first = **tensors.begin();
  const std::int64_t n = first.numel();
  TORCH_CHECK(n <= std::numeric_limits<std::uint32_t>::max(), "relu: too many elements for Metal");

  at::mps::MPSStream *stream = at::mps::getCurrentMPSStream();
  id<MTLComputePipelineState> state =
      pipeline(stream->device(), function + "_" + type_name(first));
  const std::initializer_list<const at::TensorBase *> *arguments = &tensors;

  dispatch_sync(stream->queue(), ^{
    @autoreleasepool {
      id<MTLComputeCommandEncoder> encoder = stream->commandEncoder();
      [encoder setComputePipelineState:state];
      NSUInteger index = 0;
      for (const at::TensorBase *tensor : *arguments) {
        [encoder setBuffer:buffer_of(*tensor)
                    offset:tensor->storage_offset() * tensor->itemsize()
                   atIndex:index++];
      }
      const NSUInteger width = state.maxTotalThreadsPerThreadgroup;
      [encoder dispatchThreads:MTLSizeMake(n, 1, 1)
          threadsPerThreadgroup:MTLSizeMake(width, 1, 1)];
    }
  });
}

} // namespace

namespace relu {

void forward(const at::TensorBase &x, const at::TensorBase &out) { launch("forward", {&x, &out}); }

void backward(const at::TensorBase &grad, const at::TensorBase &x, const at::TensorBase &grad_x) {
  launch("backward", {&grad, &x, &grad_x});
}

} // namespace relu
