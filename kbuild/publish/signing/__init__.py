"""Signatures of variants with sigstore, in the form that the `kernels` client verifies."""
