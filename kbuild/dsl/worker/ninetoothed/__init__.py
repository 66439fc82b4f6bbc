"""NineToothed's code generator in front of Triton's compiler, asked without a GPU."""
