#!/usr/bin/env python3
"""Writes common/cuda/wgmma_shapes.inc: for each N the registers of D, which PTX wants by name.

    python3 tools/wgmma_shapes.py > common/cuda/wgmma_shapes.inc
"""

import textwrap

WIDTHS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 176, 192, 256)


def shape(n: int) -> str:
    count = n // 2
    indices = ", ".join(str(count + i) for i in range(7))
    names = textwrap.wrap(", ".join(f"%{i}" for i in range(count)), 88)
    registers = '"{' + ' "\n    "'.join(names) + '}"'
    outputs = textwrap.fill(", ".join(f'"+f"(d[{i}])' for i in range(count)), 96,
                            initial_indent="    ", subsequent_indent="    ")
    return f"FLASH_WGMMA_SHAPE({n}, {indices},\n    {registers},\n{outputs})\n"


print("// The registers of D for wgmma.hpp, a shape each. Written by tools/wgmma_shapes.py.")
print("\n".join(shape(n) for n in WIDTHS), end="")
