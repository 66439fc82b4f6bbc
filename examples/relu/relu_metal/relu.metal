#include <metal_stdlib>

using namespace metal;

// ReLU needs no arithmetic, so each float type is handled as the integer of its width: as a signed
// integer, every negative number down to -inf is at most the bits of -inf, negative NaNs are above.
// Fast math, which Metal has on by default, cannot break it.

template <typename Int, int kMinusInf>
[[kernel]] void forward(device const Int *x [[buffer(0)]], device Int *out [[buffer(1)]],
                        uint i [[thread_position_in_grid]]) {
  const Int value = x[i];
  out[i] = value > Int(kMinusInf) ? value : Int(0);
}

template <typename Int, int kMinusInf>
[[kernel]] void backward(device const Int *grad [[buffer(0)]], device const Int *x [[buffer(1)]],
                         device Int *grad_x [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const Int value = x[i];
  grad_x[i] = value > Int(kMinusInf) && value != Int(0) ? grad[i] : Int(0);
}

#define INSTANTIATE(TYPE, INT, MINUS_INF)                                                        \
  template [[host_name("forward_" #TYPE)]] [[kernel]] decltype(forward<INT, MINUS_INF>)          \
      forward<INT, MINUS_INF>;                                                                   \
  template [[host_name("backward_" #TYPE)]] [[kernel]] decltype(backward<INT, MINUS_INF>)        \
      backward<INT, MINUS_INF>;

INSTANTIATE(float, int, -0x800000)
INSTANTIATE(half, short, -0x400)
INSTANTIATE(bfloat, short, -0x80)
