"""A compiled Metal library as a C++ header: `METAL.py <library> <header>`."""

import sys
from pathlib import Path

BYTES_PER_LINE = 16
HEADER = """\
// Written by kbuild: the extension's Metal library.
#pragma once

#include <cstddef>

namespace embedded_metallib {{

// One copy per extension, invisible to other extensions in the process.
alignas(16) __attribute__((visibility("hidden"))) inline const unsigned char metallib_data[] = {{
{data}
}};

static const std::size_t metallib_data_len = {size};

}}  // namespace embedded_metallib

#ifdef __OBJC__
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

namespace embedded_metallib {{

// The library, or nil and an error. The data is not copied: it lives as long as the extension.
static inline id<MTLLibrary> createLibrary(id<MTLDevice> device, NSError **error) {{
  dispatch_data_t data =
      dispatch_data_create(metallib_data, metallib_data_len, dispatch_get_main_queue(), ^{{
      }});
  return [device newLibraryWithData:data error:error];
}}

}}  // namespace embedded_metallib
#endif
"""


def main(library: str, header: str) -> None:
    """Read the library, write the header."""
    content = Path(library).read_bytes()
    starts = range(0, len(content), BYTES_PER_LINE)
    lines = (", ".join(map(str, content[at : at + BYTES_PER_LINE])) for at in starts)
    text = HEADER.format(data=",\n".join(lines), size=len(content))
    Path(header).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
