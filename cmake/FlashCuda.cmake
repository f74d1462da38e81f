# Finds out which of three states this machine is in, says so in one line, and enables CUDA where
# there is a compiler:
#   none     no nvcc (or too old a one): the CPU parts build
#   toolkit  nvcc and no GPU: everything builds, what needs a GPU is skipped
#   gpu      nvcc and a GPU: everything builds and runs
# Sets FLASH_HAVE_CUDA and FLASH_FEW_CONFIGURATIONS (boolean), FLASH_CUDA_STATE and FLASH_GPU_NAME.

set(FLASH_HAVE_CUDA FALSE)
set(FLASH_CUDA_STATE none)
set(FLASH_GPU_NAME "")
set(FLASH_FEW_CONFIGURATIONS FALSE)
set(FLASH_CUDA_OLDEST 12.0) # the first nvcc that compiles C++20

# The GPU's name and compute capability, from the driver's own tool: no CUDA program needs to be
# built for it.
find_program(FLASH_NVIDIA_SMI nvidia-smi)
mark_as_advanced(FLASH_NVIDIA_SMI)
if(FLASH_NVIDIA_SMI)
  execute_process(COMMAND ${FLASH_NVIDIA_SMI} --query-gpu=name,compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE gpus RESULT_VARIABLE failed
                  ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND gpus MATCHES "^([^\n]+), ([0-9]+)\\.([0-9]+)")
    set(FLASH_GPU_NAME ${CMAKE_MATCH_1})
    set(gpu_architecture ${CMAKE_MATCH_2}${CMAKE_MATCH_3})
  endif()
endif()

set(why "FLASH_CUDA is off")
if(FLASH_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  set(why "no nvcc")
  find_program(FLASH_NVCC nvcc HINTS ENV CUDA_PATH PATH_SUFFIXES bin)
  mark_as_advanced(FLASH_NVCC)
  if(FLASH_NVCC AND NOT CMAKE_CUDA_COMPILER) # most often a g++ that is newer than it knows
    execute_process(COMMAND ${FLASH_NVCC} -x cu -c /dev/null -o /dev/null
                    OUTPUT_VARIABLE words ERROR_VARIABLE words RESULT_VARIABLE failed)
    if(failed)
      string(REGEX MATCH "[^\n]*([Ee]rror|fatal|unsupported)[^\n]*" words "${words}")
      set(why "${FLASH_NVCC} compiles nothing here (${words}); another g++ for it: CUDAHOSTCXX")
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER)
    # before enable_language, which fills in its own default
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      if(gpu_architecture)
        set(CMAKE_CUDA_ARCHITECTURES ${gpu_architecture})
      else()
        # Nobody runs these kernels here: they are compiled to be checked, in half the time. Machine
        # code for a GPU elsewhere is made where somebody names it, as the preset `release` does.
        set(CMAKE_CUDA_ARCHITECTURES 80-virtual)
        set(FLASH_FEW_CONFIGURATIONS TRUE)
      endif()
    endif()
    # one runtime a process, however many of our libraries are in it
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS FLASH_CUDA_OLDEST)
      # the first with C++20
      set(why "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than ${FLASH_CUDA_OLDEST}")
    else()
      set(FLASH_HAVE_CUDA TRUE)
    endif()
  endif()
endif()

if(FLASH_HAVE_CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(FLASH_CUDA_QUICKLY "")
  if(FLASH_FEW_CONFIGURATIONS)
    # Nobody runs these kernels, so they are not optimized: part 3's solution takes nvcc 6 s instead
    # of 15.
    include(CheckCompilerFlag) # before the standard is set, which this CMake refuses to try
    check_compiler_flag(CUDA -Ofc=max FLASH_HAVE_OFC) # older versions of nvcc do not have it
    if(FLASH_HAVE_OFC)
      set(FLASH_CUDA_QUICKLY $<$<COMPILE_LANGUAGE:CUDA>:-Ofc=max>)
    endif()
    string(REPLACE "-O3" "-O1" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # CMake 3.25 does not know that this nvcc has C++20.
  foreach(option CMAKE_CUDA20_STANDARD_COMPILE_OPTION CMAKE_CUDA20_EXTENSION_COMPILE_OPTION)
    if(NOT DEFINED ${option} OR "${${option}}" STREQUAL "")
      set(${option} "-std=c++20")
    endif()
  endforeach()
  if(FLASH_GPU_NAME)
    set(FLASH_CUDA_STATE gpu)
    message(STATUS
      "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION} and ${FLASH_GPU_NAME}; everything builds and "
      "runs")
  else()
    set(FLASH_CUDA_STATE toolkit)
    message(STATUS
      "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, no GPU; everything builds, what needs a GPU is "
      "skipped")
    if(FLASH_FEW_CONFIGURATIONS)
      message(STATUS
        "CUDA: to run the kernels on a GPU of another machine, name it: "
        "-DCMAKE_CUDA_ARCHITECTURES=90 (Hopper)")
    endif()
  endif()
elseif(FLASH_REQUIRE_CUDA)
  message(FATAL_ERROR
    "CUDA: ${why}; this preset needs nvcc ${FLASH_CUDA_OLDEST} or newer on the PATH")
else()
  message(STATUS "CUDA: ${why}; the CPU parts build")
endif()
