"""Kernels on the Hub. The one part of kbuild that talks to it, through `huggingface_hub`."""
