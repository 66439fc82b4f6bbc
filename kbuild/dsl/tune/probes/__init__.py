"""Programs for the user's interpreter, which has Torch: they measure a variant's candidates.

They need only Torch and the standard library, and are started by the folder's name. They read
commands from a descriptor and write one JSON object per line.
"""
