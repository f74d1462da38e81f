# How the libraries and tests of this project are made.

# ---- flags ---------------------------------------------------------------------------------------

# flash_warnings are the flags of all files; flash_options adds -march=native, which the files that
# choose an instruction set do without.
add_library(flash_warnings INTERFACE)
add_library(flash_options INTERFACE)
target_link_libraries(flash_options INTERFACE flash_warnings)
target_include_directories(flash_warnings INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(flash_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wno-missing-field-initializers>"
  # g++ 12 sees overlapping copies in std::string where there are none (its bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers;-lineinfo>")
if(FLASH_WERROR)
  target_compile_options(flash_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(FLASH_SANITIZE)
  target_compile_options(flash_warnings INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=all>"
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  target_link_options(flash_warnings INTERFACE -fsanitize=address,undefined)
endif()
if(FLASH_NATIVE)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native FLASH_HAVE_MARCH_NATIVE)
  if(FLASH_HAVE_MARCH_NATIVE)
    target_compile_options(flash_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  endif()
endif()

# For code that nothing waits for, around what is measured and tested: there the compiler's time
# counts. Under the sanitizers it takes 2.5 times as long at -O1 as at -O0 (21 and 8 s for one file
# of cases), otherwise about the same.
add_library(flash_cold INTERFACE)
set(flash_cold_level -O1)
if(FLASH_SANITIZE)
  set(flash_cold_level -O0)
endif()
target_compile_options(flash_cold INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${flash_cold_level}>)

# A kernel that spills is a mistake in a solution, where it fails the build; a student's may spill
# while it is being written.
add_library(flash_no_spills INTERFACE)
target_compile_options(flash_no_spills
  INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warning-as-error>)
# Half of a skeleton's variables are not used yet. A library of its own, linked behind
# flash_options: clang goes by the order.
add_library(flash_skeleton_warnings INTERFACE)
target_compile_options(flash_skeleton_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wno-unused;-Wno-unused-parameter>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-unused,-Wno-unused-parameter;-diag-suppress=177,550>")

# ---- libraries -----------------------------------------------------------------------------------

# A library (SHARED, STATIC or OBJECT) with the project's warnings and include paths.
function(flash_library name type)
  add_library(${name} ${type} ${ARGN})
  target_link_libraries(${name} PRIVATE flash_options)
  target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
  # compiled when a program links it: some builds have no program that does
  if(NOT type STREQUAL "SHARED")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# Compiles the files of a target together, ten at a time. Most of the time for a file goes to
# headers: the emulator takes 8 s instead of 24. Not for tasks and rungs, whose files are edited one
# at a time.
function(flash_compile_together)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10
    UNITY_BUILD_CODE_AFTER_INCLUDE "#undef FLASH_INSTANTIATE")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # a type in an anonymous namespace of an included file
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endforeach()
  endif()
endfunction()

# What a .cu file is compiled for. Each backend is a library of its own, and no process has two of
# them:
#   gpu       by nvcc                                    NAME            on flash_cuda
#   emulated  by the C++ compiler, for the emulator      NAME_emulated   on flash_cuda_emulated
#   checked   the same with the checks' instrumentation  NAME_checked    on flash_cuda_emulated
set(FLASH_BACKENDS "")
if(FLASH_HAVE_CUDA)
  list(APPEND FLASH_BACKENDS gpu)
endif()
if(FLASH_EMULATE)
  list(APPEND FLASH_BACKENDS emulated)
endif()
if(FLASH_CHECK)
  list(APPEND FLASH_BACKENDS checked)
endif()

# The suffix of a target's name, and the library of common/cuda, for a backend; "cpu" is plain C++,
# without either.
function(flash_backend backend suffix_variable device_variable)
  set(suffix "")
  set(device flash_cuda)
  if(backend STREQUAL "emulated" OR backend STREQUAL "checked")
    set(suffix _${backend})
    set(device flash_cuda_emulated)
  elseif(backend STREQUAL "cpu")
    set(device "")
  endif()
  set(${suffix_variable} "${suffix}" PARENT_SCOPE)
  set(${device_variable} ${device} PARENT_SCOPE)
endfunction()

# One shared library of .cu files, or of C++ for the backend "cpu". For the checks a file with the
# property FLASH_MUTABLE is compiled as a copy, whose barriers tests/mutants can switch off one at a
# time; until then it does what the file does.
find_package(Python3 QUIET COMPONENTS Interpreter)
function(flash_cu_library name backend)
  if(backend STREQUAL "cpu")
    flash_library(${name} SHARED ${ARGN})
    target_link_libraries(${name} PUBLIC flash_common)
    return()
  endif()
  flash_backend(${backend} suffix device)
  set(sources ${ARGN})
  if(NOT backend STREQUAL "gpu")
    # CMake compiles a source file in one language per folder, so g++ gets a file that includes it,
    # after what nvcc includes.
    set(sources "")
    foreach(file ${ARGN})
      get_filename_component(path ${file} ABSOLUTE)
      get_filename_component(base ${file} NAME)
      set(including ${CMAKE_CURRENT_BINARY_DIR}/${name}/${base}.cpp)
      get_source_file_property(definitions ${file} COMPILE_DEFINITIONS)
      if(definitions)
        set_source_files_properties(${including} PROPERTIES COMPILE_DEFINITIONS "${definitions}")
      endif()
      get_source_file_property(is_mutable ${file} FLASH_MUTABLE)
      # a release for students may come without it
      set(tool ${CMAKE_SOURCE_DIR}/tests/mutants/mutants.py)
      if(is_mutable AND backend STREQUAL "checked" AND Python3_FOUND AND EXISTS ${tool})
        set(copy ${CMAKE_CURRENT_BINARY_DIR}/${name}/${base})
        get_filename_component(folder ${path} DIRECTORY)
        file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.hpp) # are part of the copy
        add_custom_command(OUTPUT ${copy} COMMAND Python3::Interpreter ${tool} ${path} ${copy}
          DEPENDS ${tool} ${path} ${headers} VERBATIM)
        # another file includes it
        set_source_files_properties(${copy} PROPERTIES HEADER_FILE_ONLY ON)
        list(APPEND sources ${copy})
        set(path ${copy})
      endif()
      file(GENERATE OUTPUT ${including} CONTENT "#include <cuda_runtime.h>\n#include \"${path}\"\n")
      list(APPEND sources ${including})
    endforeach()
  endif()
  flash_library(${name} SHARED ${sources})
  target_link_libraries(${name} PUBLIC ${device})
  if(NOT backend STREQUAL "gpu" OR FLASH_FEW_CONFIGURATIONS)
    target_compile_definitions(${name} PRIVATE FLASH_FEW_CONFIGURATIONS)
  endif()
  if(backend STREQUAL "gpu")
    target_compile_options(${name} PRIVATE ${FLASH_CUDA_QUICKLY})
    target_link_libraries(${name} PRIVATE CUDA::cudart)
  else()
    target_link_libraries(${name} PRIVATE flash_emulator_headers)
    if(backend STREQUAL "checked")
      target_link_libraries(${name} PRIVATE flash_emulator_checks)
    endif()
  endif()
endfunction()

# A task's library once more, in the folder VARIANT, where the task's test program takes it from
# when LD_LIBRARY_PATH says so:
#   sanitized   with AddressSanitizer and UndefinedBehaviorSanitizer, for ./lab check --sanitize,
#               which preloads the sanitizer
#   debug       with all lines and variables, for ./lab debug
# The options behind others win, so these are linked last.
add_library(flash_debug_options INTERFACE)
target_compile_options(flash_debug_options INTERFACE -O0 -g -w)
add_library(flash_sanitized_options INTERFACE)
target_compile_options(flash_sanitized_options INTERFACE -O1 -g1 -fsanitize=address,undefined
  -fno-sanitize-recover=all -w)
target_link_options(flash_sanitized_options INTERFACE -fsanitize=address,undefined)
set(FLASH_ASAN "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND
  NOT FLASH_SANITIZE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libasan.so
    OUTPUT_VARIABLE FLASH_ASAN OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT EXISTS "${FLASH_ASAN}")
    set(FLASH_ASAN "")
  endif()
endif()
function(flash_variant variant library file backend)
  set(name ${library}_${variant})
  flash_cu_library(${name} ${backend} ${file})
  target_link_libraries(${name} PRIVATE flash_${variant}_options flash_task_exports)
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON OUTPUT_NAME ${library}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${variant})
endfunction()

# A task, skeleton/FILE and solution/FILE: one file, one library. A skeleton that does not compile
# costs its own task only. The library exports flash_task and nothing else, not even what the
# compiler makes of the standard library's templates.
add_library(flash_task_exports INTERFACE)
target_compile_options(flash_task_exports INTERFACE -UNDEBUG) # a student's assert() holds
if(NOT APPLE)
  target_link_options(flash_task_exports INTERFACE
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/task.map -Wl,--require-defined=flash_task)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(flash_task_exports INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-gnu-unique>)
endif()
# <cuda_runtime.h>, which an emulated file includes first, precompiled for students' files: it is
# 0.5 s of 2.3 in the compilation of part 3's kernel.
function(flash_first_header library backend)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR NOT backend MATCHES "emulated|checked")
    return()
  endif()
  set(name flash_first_header_${backend})
  if(NOT TARGET ${name})
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cpp CONTENT "")
    flash_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE flash_emulator_headers flash_task_exports)
    if(backend STREQUAL "checked")
      target_link_libraries(${name} PRIVATE flash_emulator_checks)
    endif()
    target_precompile_headers(${name} PRIVATE <cuda_runtime.h>)
  endif()
  target_precompile_headers(${library} REUSE_FROM ${name})
endfunction()

function(flash_task part name file)
  get_filename_component(extension ${file} EXT)
  set(backends cpu)
  if(extension STREQUAL ".cu")
    set(backends ${FLASH_BACKENDS})
  endif()
  foreach(implementation skeleton solution)
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${implementation}/${file})
      continue() # a release for students has no solutions
    endif()
    foreach(backend ${backends})
      flash_backend(${backend} suffix device)
      set(library ${part}_${name}_${implementation}${suffix})
      set_source_files_properties(solution/${file} PROPERTIES FLASH_MUTABLE ON)
      flash_cu_library(${library} ${backend} ${implementation}/${file})
      target_link_libraries(${library} PRIVATE flash_task_exports)
      if(backend STREQUAL "cpu")
        target_compile_options(${library} PRIVATE -g1) # lines, for crashes and endless loops
        if(FLASH_ASAN)
          flash_variant(sanitized ${library} ${implementation}/${file} cpu)
          flash_list_library(${library}_sanitized sanitized
            ${CMAKE_CURRENT_SOURCE_DIR}/${implementation}/${file})
        endif()
      endif()
      if(backend STREQUAL "emulated" OR backend STREQUAL "checked")
        target_compile_options(${library} PRIVATE -Werror=vla -Werror=narrowing) # as nvcc
      endif()
      if(backend STREQUAL "cpu" OR backend STREQUAL "emulated")
        flash_variant(debug ${library} ${implementation}/${file} ${backend})
      endif()
      flash_list_library(${library} ${backend}
        ${CMAKE_CURRENT_SOURCE_DIR}/${implementation}/${file})
      if(implementation STREQUAL "skeleton")
        target_link_libraries(${library} PRIVATE flash_skeleton_warnings)
        flash_first_header(${library} ${backend})
      else()
        target_link_libraries(${library} PRIVATE flash_no_spills)
      endif()
    endforeach()
  endforeach()
endfunction()

# ---- how a library is compiled -------------------------------------------------------------------

# Other files are compiled in the place of a task's or a rung's: submissions, the zoo's programs, a
# rung with other tiles. How, is in BUILD/libraries.LANGUAGE.json (tools/lab/libraries.py), with the
# options that CMake computes for a library. This function enters a FILE of a LIBRARY there.
string(TOUPPER ${CMAKE_BUILD_TYPE} flash_build_type)
function(flash_list_library library backend file)
  set(language CXX)
  set(options "")
  if(backend STREQUAL "gpu")
    set(language CUDA)
    set(options -forward-unknown-to-host-compiler -x cu)
    if(CMAKE_CUDA_HOST_COMPILER)
      list(APPEND options -ccbin=${CMAKE_CUDA_HOST_COMPILER})
    endif()
  elseif(backend MATCHES "emulated|checked")
    set(options -x c++ -include cuda_runtime.h) # CMake's own file includes the two
  endif()
  set(cmake CMAKE_${language})
  separate_arguments(flags UNIX_COMMAND "${${cmake}_FLAGS} ${${cmake}_FLAGS_${flash_build_type}}")
  list(APPEND options ${${cmake}20_STANDARD_COMPILE_OPTION} ${flags} ${${cmake}_COMPILE_OPTIONS_PIC}
    ${${cmake}_COMPILE_OPTIONS_VISIBILITY}hidden
    ${${cmake}_COMPILE_OPTIONS_VISIBILITY_INLINES_HIDDEN}
    $<TARGET_PROPERTY:${library},COMPILE_OPTIONS>)
  set(definitions $<TARGET_PROPERTY:${library},COMPILE_DEFINITIONS>)
  set(includes $<TARGET_PROPERTY:${library},INCLUDE_DIRECTORIES>)
  set(link $<TARGET_PROPERTY:${library},LINK_OPTIONS>)
  set(architectures $<TARGET_PROPERTY:${library},CUDA_ARCHITECTURES>)
  set(entry "\"file\": \"${file}\", \"backend\": \"${backend}\"")
  string(APPEND entry ",\n  \"compiler\": \"${${cmake}_COMPILER}\"")
  string(APPEND entry ",\n  \"linker\": \"${CMAKE_CXX_COMPILER}\"")
  foreach(list options definitions includes link architectures)
    string(APPEND entry ",\n  \"${list}\": [\"$<JOIN:$<REMOVE_DUPLICATES:${${list}}>,\", \">\"]")
  endforeach()
  set_property(GLOBAL APPEND PROPERTY FLASH_LIBRARIES_${language} "{${entry}}")
endfunction()

function(flash_write_libraries)
  foreach(language CXX CUDA)
    set(file ${CMAKE_BINARY_DIR}/libraries.${language}.json)
    file(REMOVE ${file})
    get_property(entries GLOBAL PROPERTY FLASH_LIBRARIES_${language})
    if(entries)
      list(JOIN entries ",\n" entries)
      file(GENERATE OUTPUT ${file} CONTENT "[${entries}]\n"
        CONDITION $<COMPILE_LANGUAGE:${language}>)
    endif()
  endforeach()
endfunction()

# ---- tests ---------------------------------------------------------------------------------------

# What is tested is in libraries. Under the sanitizers UBSan's checks would double the compiler's
# time for tests and graded cases.
add_library(flash_test_options INTERFACE)
target_link_libraries(flash_test_options INTERFACE flash_cold)
if(FLASH_SANITIZE)
  target_compile_options(flash_test_options
    INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
endif()

# Registers the test cases of a Catch2 binary with ctest, under one label: a list of labels does not
# survive Catch2's discovery.
function(flash_discover_tests target label prefix)
  cmake_parse_arguments(arg "" "" "TEST_SPEC;EXTRA_ARGS;PROPERTIES" ${ARGN})
  catch_discover_tests(${target} TEST_PREFIX "${prefix}: " TEST_SPEC ${arg_TEST_SPEC}
    EXTRA_ARGS ${arg_EXTRA_ARGS}
    PROPERTIES LABELS ${label} TIMEOUT 300 ${arg_PROPERTIES})
endfunction()

# The runner of this build for a backend (tests/harness/CMakeLists.txt).
function(flash_runner_name backend variable)
  set(name flash_runner)
  if(NOT backend STREQUAL "cpu")
    string(APPEND name _${backend})
  endif()
  set(${variable} ${name} PARENT_SCOPE)
endfunction()

# The judge of a part's graded cases, PART_judge, which loads no student code: of each of the TASKS,
# "fused_cpu" or "cuda:fused_cuda", the object library PART_TASK_cases with
# flash::harness::TASK_task(), and the cases of grading/hidden/PART_TASK.cpp. Each case is
# registered with each of the task's libraries. Labels: PART-solution and PART-skeleton, with -gpu,
# -emulated or -checked behind them where the task is CUDA.
function(flash_judge part)
  set(judge ${part}_judge)
  set(harness ${CMAKE_SOURCE_DIR}/tests/harness/judge)
  set(declared "")
  set(entered "")
  file(GLOB hidden_cases CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/grading/hidden/${part}_*.cpp)
  file(GLOB remote ${harness}/remote_${part}.cpp ${harness}/remote_${part}_cuda.cpp)
  add_executable(${judge} ${CMAKE_CURRENT_BINARY_DIR}/tasks.cpp ${remote})
  flash_compile_together(${judge})
  foreach(entry ${ARGN})
    string(REPLACE "cuda:" "" task ${entry})
    string(APPEND declared "TaskUnderTest ${task}_task();\n")
    string(APPEND entered "  add(${task}_task()")
    set(hidden ${CMAKE_SOURCE_DIR}/grading/hidden/${part}_${task}.cpp)
    if(hidden IN_LIST hidden_cases)
      target_sources(${judge} PRIVATE ${hidden})
      set_source_files_properties(${hidden} PROPERTIES
        COMPILE_DEFINITIONS hidden_cases=hidden_cases_of_${task})
      string(APPEND declared "std::vector<GradedCase> hidden_cases_of_${task}();\n")
      string(APPEND entered ", hidden_cases_of_${task}()")
    endif()
    string(APPEND entered ");\n")
    target_precompile_headers(${part}_${task}_cases REUSE_FROM flash_catch_headers)
    target_link_libraries(${judge} PRIVATE ${part}_${task}_cases)
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/tasks.cpp
    CONTENT "#include \"harness/cases/graded_case.hpp\"
namespace flash::harness {
${declared}
std::vector<TaskUnderTest> tasks() {
  std::vector<TaskUnderTest> all;
  const auto add = [&](TaskUnderTest task, const std::vector<GradedCase>& hidden = {}) {
    for (const GradedCase& graded : hidden) {
      task.cases.push_back(graded);
      task.cases.back().is_hidden = true;
    }
    all.push_back(std::move(task));
  };
${entered}  return all;
}
}  // namespace flash::harness
")
  target_link_libraries(${judge} PRIVATE flash_options flash_cold flash_judge_main flash_harness)
  file(READ ${FLASH_FOLDER_${part}}/tasks.toml manifest)
  set(ready "")
  foreach(entry ${ARGN})
    string(REPLACE "cuda:" "" task ${entry})
    set(other "")
    if(manifest MATCHES "id = \"${part}.${task}\"\nother_task = \"([a-z0-9_.]+)\"")
      string(REPLACE "." "_" other ${CMAKE_MATCH_1})
    endif()
    foreach(implementation skeleton solution)
      foreach(backend cpu ${FLASH_BACKENDS})
        flash_backend(${backend} suffix device)
        set(library ${part}_${task}_${implementation}${suffix})
        if(NOT TARGET ${library} OR (backend STREQUAL "cpu" AND NOT entry STREQUAL task) OR (backend
          STREQUAL "gpu" AND entry STREQUAL task))
          continue()
        endif()
        set(label ${part}-${implementation})
        set(prefix ${part}.${task}.${implementation})
        set(lib ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/lib)
        set(arguments --task ${part}.${task} --library
          ${lib}${library}${CMAKE_SHARED_LIBRARY_SUFFIX})
        set(other_library ${other}_${implementation}${suffix})
        if(TARGET ${other_library})
          list(APPEND arguments --other-library
            ${lib}${other_library}${CMAKE_SHARED_LIBRARY_SUFFIX})
        endif()
        if(NOT backend STREQUAL "cpu")
          string(APPEND label -${backend})
          if(NOT backend STREQUAL "gpu")
            string(APPEND prefix .${backend})
          endif()
        endif()
        # Neither a pass nor a skip is read off the return code: Catch2 2 returns the number of
        # failures.
        # TEST_SPEC is one word: Catch2 3.7, Debian 13's, drops the others.
        flash_discover_tests(${judge} ${label} "${prefix}"
          TEST_SPEC --for=${part}.${task}/${backend}
          EXTRA_ARGS ${arguments} PROPERTIES PASS_REGULAR_EXPRESSION "verdict:passed"
          FAIL_REGULAR_EXPRESSION "verdict:failed"
          SKIP_REGULAR_EXPRESSION "verdict:not-started|verdict:needs-gpu|verdict:needs-checks")
        flash_runner_name(${backend} runner)
        # ./lab check starts a judge as soon as the build's output says so.
        add_custom_target(${library}_ready COMMAND ${CMAKE_COMMAND} -E true
          COMMENT "ready: ${library}")
        add_dependencies(${library}_ready ${judge} ${library} ${runner})
        if(implementation STREQUAL "skeleton")
          list(APPEND ready ${library}_ready)
        endif()
      endforeach()
    endforeach()
  endforeach()
  # What the student wrote. Before it is built, ctest knows no case, and one test says what to do.
  add_custom_target(${part} DEPENDS ${ready})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/not_built.cmake CONTENT
"if(NOT EXISTS \"$<TARGET_FILE:${judge}>\")
  foreach(tests ${part}-skeleton ${part}-solution)
    set(target all)
    if(tests MATCHES skeleton)
      set(target ${part})
    endif()
    add_test(\"\${tests} is not built\" \"${CMAKE_COMMAND}\" -E echo
      \"Build it first: cmake --build ${folder} --target \${target}\")
    set_tests_properties(\"\${tests} is not built\" PROPERTIES LABELS \${tests}
      WILL_FAIL TRUE)
  endforeach()
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES
    ${CMAKE_CURRENT_BINARY_DIR}/not_built.cmake)
endfunction()

# Test files as an object library, for test binaries to share.
function(flash_test_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_precompile_headers(${name} REUSE_FROM flash_catch_headers)
  target_link_libraries(${name} PRIVATE flash_options flash_test_options flash_catch)
  target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
endfunction()

# An ordinary test binary; of all tests the costliest run first.
function(flash_test name label)
  cmake_parse_arguments(arg "" "COST;ENVIRONMENT" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT DEFINED arg_COST)
    set(arg_COST 0)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_precompile_headers(${name} REUSE_FROM flash_catch_headers)
  target_link_libraries(${name} PRIVATE flash_options flash_test_options flash_catch_main
    flash_common ${arg_LIBRARIES})
  flash_discover_tests(${name} ${label} ${name} PROPERTIES
    SKIP_REGULAR_EXPRESSION "verdict:needs-gpu" COST ${arg_COST}
    ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# The tests in SOURCES, compiled once, linked with the .cu files in KERNELS for each of this build's
# backends (or of those in BACKENDS) that has what LIBRARY names, libraries that have a backend's
# suffix; LIBRARIES the rest that they need; ENVIRONMENT goes to flash_test. The binaries are
# NAME_tests, NAME_emulated_tests and NAME_checked_tests; the labels LABEL-gpu, LABEL-emulated and
# LABEL-checked.
function(flash_backend_tests name label)
  cmake_parse_arguments(arg "" "ENVIRONMENT" "SOURCES;KERNELS;BACKENDS;LIBRARY;LIBRARIES" ${ARGN})
  if(NOT DEFINED arg_BACKENDS)
    set(arg_BACKENDS ${FLASH_BACKENDS})
  endif()
  set(backends "")
  foreach(backend ${arg_BACKENDS})
    flash_backend(${backend} suffix device)
    set(has_all ${FLASH_BACKENDS})
    foreach(library ${arg_LIBRARY})
      if(NOT TARGET ${library}${suffix})
        set(has_all "")
      endif()
    endforeach()
    if(backend IN_LIST has_all)
      list(APPEND backends ${backend})
    endif()
  endforeach()
  if(NOT backends)
    return()
  endif()
  flash_test_objects(${name}_test_objects ${arg_SOURCES})
  target_link_libraries(${name}_test_objects PRIVATE flash_common ${arg_LIBRARIES})
  foreach(backend ${backends})
    flash_backend(${backend} suffix device)
    set(libraries ${name}_test_objects ${arg_LIBRARIES} ${device})
    if(arg_KERNELS)
      flash_cu_library(${name}_kernels${suffix} ${backend} ${arg_KERNELS})
      target_include_directories(${name}_kernels${suffix} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
      list(APPEND libraries ${name}_kernels${suffix})
    endif()
    foreach(library ${arg_LIBRARY})
      list(APPEND libraries ${library}${suffix})
    endforeach()
    set(cost 0)
    if(backend STREQUAL "checked")
      set(cost 10)
    endif()
    flash_test(${name}${suffix}_tests ${label}-${backend} COST ${cost} LIBRARIES ${libraries}
      ENVIRONMENT "${arg_ENVIRONMENT}")
  endforeach()
endfunction()

# The test that the checks find a race without each barrier of STEM.cu, which is compiled with
# FLASH_MUTABLE, in LIBRARY, or in the solution's library of a task, whose struct of functions is
# TASK. LAUNCH runs the kernels, by what HEADER declares: for a task functions of `task` and of
# tests/mutants/launches.hpp.
function(flash_mutants name stem)
  cmake_parse_arguments(arg "" "HEADER;LAUNCH;LIBRARY;TASK" "" ${ARGN})
  set(task_library ${name}_solution_checked)
  if(NOT TARGET mutants_test_objects OR (NOT TARGET "${arg_LIBRARY}" AND NOT
    TARGET ${task_library}))
    return() # no checks here, or a release for students, which has no solutions
  endif()
  set(listed "std::vector<Mutant> list; flash_mutants_${stem}(list); return list;")
  set(task "")
  set(launches "#include \"mutants/mutants.hpp\"")
  if(arg_TASK)
    set(path "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/lib${task_library}${CMAKE_SHARED_LIBRARY_SUFFIX}")
    set(listed "return mutants_in(\"${path}\", \"flash_mutants_${stem}\");")
    set(task "const flash::TaskLibrary<flash::${arg_TASK}> task{\"${path}\"};")
    set(launches "#include \"mutants/launches.hpp\"")
  endif()
  set(launch ${CMAKE_CURRENT_BINARY_DIR}/${name}_launch.cpp)
  file(GENERATE OUTPUT ${launch} CONTENT "#include \"${arg_HEADER}\"
${launches}
extern \"C\" void flash_mutants_${stem}(std::vector<flash::mutants::Mutant>& list);
namespace flash::mutants {
std::vector<Mutant> all() { ${listed} }
void run_kernels() { ${task} ${arg_LAUNCH}; }
}  // namespace flash::mutants
")
  flash_test(${name}_mutants_tests emulator-checked COST 20 SOURCES ${launch}
    LIBRARIES mutants_test_objects mutants_judge ${arg_LIBRARY} flash_emulator flash_cuda_emulated)
  if(arg_TASK)
    add_dependencies(${name}_mutants_tests ${task_library})
  endif()
  target_include_directories(${name}_mutants_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
endfunction()

# The same for each .cu file of the ladder of PART, which runs by what it enters in the registry.
function(flash_ladder_mutants part)
  flash_registry(${part}_mutants_passes LIBRARIES ${part}_cuda_ladder_checked
    TASKS ${FLASH_CALLED_BY_${part}_checked})
  get_target_property(rungs ${part}_cuda_ladder_checked FLASH_RUNGS)
  list(TRANSFORM rungs REPLACE "^[^_]*_(.*)$" "\\1")
  foreach(rung ${rungs})
    flash_mutants(${part}_ladder_${rung} ${rung} LIBRARY ${part}_mutants_passes
      HEADER common/all_passes.hpp LAUNCH "run_entries(all_passes(), \"${rung}\")")
  endforeach()
endfunction()
