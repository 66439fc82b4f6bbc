"""`load_inline`: kernels from sources in a string, for the running interpreter."""
