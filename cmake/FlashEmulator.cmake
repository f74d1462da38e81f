# Decides, by system and compiler, whether .cu files are compiled for the CPU (emulator), and
# whether that build can check them; says so in one line. Sets FLASH_EMULATE and FLASH_CHECK
# (booleans).

set(FLASH_EMULATE FALSE)
set(FLASH_CHECK FALSE)
if(NOT FLASH_SIMT OR FLASH_SANITIZE)
  set(emulator "off")
elseif(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR
  MATCHES "^(x86_64|AMD64|aarch64)$")
  set(emulator "needs Linux on x86-64 or AArch64; .cu files are left to GPUs")
else()
  set(FLASH_EMULATE TRUE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(FLASH_CHECK TRUE)
    set(emulator "runs .cu files on the CPU, and checks them")
  else()
    # clang leaves reads out that a write follows (x += y), and copies of structures: races would be
    # missed.
    set(emulator
      "runs .cu files on the CPU; checking them needs g++, this is ${CMAKE_CXX_COMPILER_ID}")
  endif()
endif()
message(STATUS "Emulator: ${emulator}")
