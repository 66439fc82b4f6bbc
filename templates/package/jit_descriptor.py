def _descriptor(tensor, block, padding, layout):
    more = [padding] if padding != 'zero' else []
    kernel = _kernel
    while not hasattr(kernel, 'params'):
        kernel = kernel.fn
    if not getattr(kernel, 'is_gluon', bool)():
        tools = importlib.import_module('triton.tools.tensor_descriptor')
        return tools.TensorDescriptor.from_tensor(tensor, block, *more)
    language = importlib.import_module('triton.experimental.gluon.language')
    tools = importlib.import_module('triton.experimental.gluon.nvidia.hopper')
    layouts = language.NVMMASharedLayout
    if 'swizzle_byte_width' in layout:
        bits = 8 * tensor.element_size()
        own = layouts(element_bitwidth=bits, rank=len(block), **layout)
    else:
        own = layouts.get_default_for(block, getattr(language, str(tensor.dtype)[6:]), **layout)
    return tools.TensorDescriptor.from_tensor(tensor, block, own, *more)
