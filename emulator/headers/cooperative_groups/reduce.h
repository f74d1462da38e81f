// For the emulator: reduce() over a tile.
#pragma once

#include "cooperative_groups.h"
