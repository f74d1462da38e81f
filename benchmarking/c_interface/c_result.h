// What every C interface here has: results, and what was wrong. Each library has its own flash_last_error().
#pragma once

#define FLASH_C_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum FlashResult { FLASH_OK = 0, FLASH_ERROR = 1, FLASH_UNSUPPORTED = 2, FLASH_OUT_OF_MEMORY = 3 };

// What was wrong in the last call that failed on this thread; valid until the next one that fails.
FLASH_C_EXPORT const char* flash_last_error(void);

#ifdef __cplusplus
}
#endif
