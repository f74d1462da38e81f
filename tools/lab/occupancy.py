"""How many blocks of a kernel a GPU's multiprocessor holds."""

import math

# By compute capability, of a multiprocessor: KiB of shared memory, of which a block can have 1 less
# (on 7.5 all), warps, and blocks.
MULTIPROCESSORS = {75: (64, 32, 16), 80: (164, 64, 32), 86: (100, 48, 16), 87: (164, 48, 16),
                   89: (100, 48, 24), 90: (228, 64, 32), 100: (228, 64, 32), 103: (228, 64, 32),
                   120: (100, 48, 24)}


def blocks(capability: int, shared: int, threads: int, registers: int | None) -> tuple[int, str]:
    """How many, and what allows no more. `shared` in bytes of a block; `registers` of a thread, if
    they are known."""
    kib, warps, most = MULTIPROCESSORS.get(capability, MULTIPROCESSORS[90])
    reserved = 1024 if capability >= 80 else 0
    own_warps = math.ceil(threads / 32)
    rooms = {"shared memory": kib * 1024 // max(1, shared + reserved), "warps": warps // own_warps,
             "the number of blocks": most}
    if registers:  # a warp gets them in units of 256
        rooms["registers"] = 65536 // (math.ceil(registers / 8) * 256 * own_warps)
    limit = min(rooms, key=rooms.__getitem__)
    return rooms[limit], limit
