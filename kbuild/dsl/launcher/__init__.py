"""The launcher of a kernel: C++ that chooses, loads and launches images behind ops.

`files` makes two files from compiled ops: one source, and one file with all images that the
assembler puts into the extension. The source needs Torch's stable ABI and nothing else, or the C
functions of TVM-FFI: `framework_adapters` says what differs.
"""
