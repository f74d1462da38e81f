# How the libraries and tests of this project are made.
#
#   flash_library(NAME [SHARED|STATIC|OBJECT] sources...)      any library, with the project's warnings and include paths
#   flash_task(PART NAME FILE)                                 a task: skeleton/FILE and solution/FILE, a shared library each
#   flash_task_tests(PART NAME CASES)                          its graded cases: one binary for each of those libraries
#   flash_test(NAME LABEL [LIBRARIES ...] SOURCES ...)         an ordinary Catch2 test binary

# ---- flags ----------------------------------------------------------------------------------------------------------------

add_library(flash_options INTERFACE)
target_include_directories(flash_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(flash_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wno-missing-field-initializers>"
  # g++ 12 sees overlapping copies in std::string where there are none (its bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers;-lineinfo>")
if(FLASH_WERROR)
  target_compile_options(flash_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(FLASH_SANITIZE)
  target_compile_options(flash_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  target_link_options(flash_options INTERFACE -fsanitize=address,undefined)
endif()
if(FLASH_NATIVE)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native FLASH_HAVE_MARCH_NATIVE)
  if(FLASH_HAVE_MARCH_NATIVE)
    target_compile_options(flash_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  endif()
endif()

# A kernel that spills is a mistake in a solution, where it fails the build; a student's may spill while it is being written.
add_library(flash_no_spills INTERFACE)
target_compile_options(flash_no_spills INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warning-as-error>)
# Half of a skeleton's variables are not used yet. A library of its own, linked behind flash_options: clang goes by the order.
add_library(flash_skeleton_warnings INTERFACE)
target_compile_options(flash_skeleton_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wno-unused;-Wno-unused-parameter>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-unused,-Wno-unused-parameter;-diag-suppress=177,550>")

# ---- libraries ------------------------------------------------------------------------------------------------------------

function(flash_library name type)
  add_library(${name} ${type} ${ARGN})
  target_link_libraries(${name} PRIVATE flash_options)
  target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
endfunction()

# A task is one file, one library, one test binary: a skeleton that does not compile costs its own task only, and no symbol is
# defined twice. The library exports the contract's functions (FLASH_EXPORT) and nothing else.
function(flash_task part name file)
  get_filename_component(extension ${file} EXT)
  if(extension STREQUAL ".cu" AND NOT FLASH_HAVE_CUDA)
    return()
  endif()
  foreach(implementation skeleton solution)
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${implementation}/${file})
      continue() # a release for students has no solutions
    endif()
    set(library ${part}_${name}_${implementation})
    flash_library(${library} SHARED ${implementation}/${file})
    target_link_libraries(${library} PUBLIC flash_common)
    if(extension STREQUAL ".cu")
      target_link_libraries(${library} PUBLIC flash_cuda PRIVATE CUDA::cudart)
    endif()
    if(implementation STREQUAL "skeleton")
      target_link_libraries(${library} PRIVATE flash_skeleton_warnings)
    else()
      target_link_libraries(${library} PRIVATE flash_no_spills)
    endif()
  endforeach()
endfunction()

# ---- tests ----------------------------------------------------------------------------------------------------------------

# No test waits for the code of Catch2's headers, and at -O3 it takes longer to compile; what is tested is in libraries.
# Under the sanitizers UBSan's checks of every CHECK() would take a minute a file.
add_library(flash_test_options INTERFACE)
target_compile_options(flash_test_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
if(FLASH_SANITIZE)
  target_compile_options(flash_test_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
endif()

# Registers the test cases of a Catch2 binary with ctest, under one label: a list of labels does not survive Catch2's discovery.
function(flash_discover_tests target label prefix)
  catch_discover_tests(${target} TEST_PREFIX "${prefix}: " PROPERTIES LABELS ${label} TIMEOUT 300 ${ARGN})
endfunction()

# CASES is an object library with flash::harness::task_under_test(); it is compiled once, whatever it is linked with.
# Labels: PART-solution, PART-skeleton, with -gpu behind them where the task is CUDA.
function(flash_task_tests part name cases)
  foreach(implementation skeleton solution)
    set(library ${part}_${name}_${implementation})
    if(NOT TARGET ${library})
      continue()
    endif()
    set(target ${library}_tests)
    add_executable(${target} $<TARGET_OBJECTS:${cases}> ${CMAKE_SOURCE_DIR}/tests/harness/implementation.cpp)
    target_compile_definitions(${target} PRIVATE FLASH_IMPLEMENTATION="${implementation}")
    target_link_libraries(${target} PRIVATE flash_options flash_harness_main ${library})
    set(label ${part}-${implementation})
    if("flash_cuda" IN_LIST ARGN)
      string(APPEND label -gpu)
      target_link_libraries(${target} PRIVATE flash_cuda)
    endif()
    # Neither a pass nor a skip is read off the return code: student code may call exit(0), and Catch2 2 returns the number of
    # failures. The harness prints these words last, when all cases came to their end.
    flash_discover_tests(${target} ${label} "${part}.${name}.${implementation}"
      PASS_REGULAR_EXPRESSION "verdict:passed" FAIL_REGULAR_EXPRESSION "verdict:failed" SKIP_REGULAR_EXPRESSION "verdict:not-started|verdict:needs-gpu")
    if(NOT TARGET ${part}_${implementation}_tests)
      add_custom_target(${part}_${implementation}_tests)
    endif()
    add_dependencies(${part}_${implementation}_tests ${target})
  endforeach()
endfunction()

function(flash_test name label)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE flash_options flash_test_options flash_catch_main flash_common ${arg_LIBRARIES})
  flash_discover_tests(${name} ${label} ${name} SKIP_REGULAR_EXPRESSION "verdict:needs-gpu")
endfunction()
