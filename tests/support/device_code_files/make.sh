#!/bin/sh
# Writes the containers beside this script with real compilers, for when a new form appears:
#   make.sh NVCC NAME     (--compress-mode=size where nvcc knows it)   -> NAME.fatbin
#   make.sh CLANG NAME    (clang++ for HIP; ROCM is the folder of its headers) -> NAME.hipfb
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
printf '__attribute__((global)) void k(float *x) { *x *= 2; }\n' > k.hip
printf '__global__ void k(float *x) { *x *= 2; }\n' > k.cu
case $(basename "$1") in
nvcc)
    archs="80:sm_80 80:compute_80 90a:sm_90a 90a:compute_90a"
    flags=
    if "$1" --help | grep -q compress-mode; then
        archs="$archs 100f:sm_100f 120:sm_120"
        flags=--compress-mode=size
    fi
    for arch in $archs; do
        flags="$flags -gencode arch=compute_${arch%%:*},code=${arch##*:}"
    done
    "$1" ${HOST:+-ccbin "$HOST"} $flags -fatbin k.cu -o "$here/$2.fatbin"
    ;;
*)
    "$1" -x hip -nogpuinc -nogpulib --cuda-device-only --offload-compress \
        --offload-arch=gfx90a:xnack+ --offload-arch=gfx942:sramecc+:xnack- --offload-arch=gfx1100 \
        -c k.hip -o "$here/$2.hipfb"
    ;;
esac
