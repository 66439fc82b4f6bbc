"""Plug-ins that come with kbuild. They register as anybody's do; nothing of kbuild imports them."""
