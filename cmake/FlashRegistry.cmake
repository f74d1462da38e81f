# How passes get into the registry (common/registry.hpp). A file that enters passes ends with
# FLASH_ENTER(registry, name) { ... }; the calls of these functions are generated here.
#
#   flash_entries(PART FILE)             PART's given passes and its tasks: the library PART_entries
#   flash_ladder(PART)                   the rungs of the folder ladder/: the library PART_ladder of
#                                        N_name.cpp and N_name.isa.cpp, and of N_name.cu and
#                                        N_name.sm90a.cu the library PART_cuda_ladder for each
#                                        backend
#   flash_registry(NAME LIBRARIES ... [TASKS ...])  the library NAME for common/all_passes.hpp, with
#                                                   what these
#                                        libraries have, in their order. TASKS are libraries of one
#                                        author's tasks, which the passes load when they run:
#                                        part1_fused_cpu_solution
#
# An N_name.sm90a.cu uses wgmma: whatever the GPUs of the build, nvcc compiles it for compute
# capability 9.0 with Hopper's own instructions, and its predicate has to refuse other GPUs. An
# N_name.isa.cpp is compiled once for each instruction set, with FLASH_ISA set to its name, and once
# for the baseline with FLASH_BASELINE set as well: only there it may use the standard library, and
# only there it enters its passes. A function compiled for AVX-512 would end the program on an older
# processor.

# Sets what FLASH_ENTER needs for each file, and in `rungs` their names, PART_N_name. In the
# property FLASH_RUNGS of a library they tell flash_registry() what it has.
function(flash_rungs part files rungs_variable)
  set(rungs "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "\\..*$" "" rung ${part}_${name})
    set_source_files_properties(${file} PROPERTIES COMPILE_DEFINITIONS FLASH_RUNG=enter_${rung})
    list(APPEND rungs ${rung})
  endforeach()
  set(${rungs_variable} ${rungs} PARENT_SCOPE)
endfunction()

function(flash_entries part file)
  flash_rungs(${part} ${file} library)
  flash_library(${library} STATIC ${file})
  target_link_libraries(${library} PUBLIC flash_common PRIVATE flash_cold)
  set_target_properties(${library} PROPERTIES FLASH_RUNGS ${library})
endfunction()

function(flash_ladder part)
  cmake_parse_arguments(arg "" "" "SOURCES;OPTIONS" ${ARGN})
  file(GLOB files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ladder/[0-9]*_*.cpp
    ladder/[0-9]*_*.cu)
  # no editor's backup
  list(FILTER files INCLUDE REGEX "/[0-9]+_[a-z0-9_]+(\\.isa\\.cpp|\\.sm90a\\.cu|\\.cpp|\\.cu)$")
  list(SORT files COMPARE NATURAL)
  set(cpp ${files})
  set(isa ${files})
  set(cu ${files})
  list(FILTER cpp EXCLUDE REGEX "\\.isa\\.cpp$|\\.cu$")
  list(FILTER isa INCLUDE REGEX "\\.isa\\.cpp$")
  list(FILTER cu INCLUDE REGEX "\\.cu$")
  set(hopper ${cu})
  list(FILTER hopper INCLUDE REGEX "\\.sm90a\\.cu$")

  if(cpp OR isa)
    set(on_cpu ${files})
    list(FILTER on_cpu INCLUDE REGEX "\\.cpp$")
    flash_rungs(${part} "${on_cpu}" rungs)
    flash_library(${part}_ladder SHARED ${cpp} ${arg_SOURCES})
    target_link_libraries(${part}_ladder PUBLIC flash_common)
    target_compile_options(${part}_ladder PRIVATE ${arg_OPTIONS})
    set_target_properties(${part}_ladder PROPERTIES FLASH_RUNGS "${rungs}")
    if(isa)
      flash_ladder_isa(${part} baseline "${isa}")
      target_compile_definitions(${part}_ladder_baseline PRIVATE FLASH_BASELINE)
      # Under the sanitizers one instruction set is enough.
      if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND NOT FLASH_SANITIZE)
        flash_ladder_isa(${part} avx2 "${isa}" -march=x86-64-v3)
        flash_ladder_isa(${part} avx512 "${isa}" -march=x86-64-v4)
        target_compile_definitions(${part}_ladder PRIVATE FLASH_HAVE_AVX)
        target_compile_definitions(${part}_ladder_baseline PRIVATE FLASH_HAVE_AVX)
      endif()
    endif()
  endif()

  if(cu)
    flash_rungs(${part} "${cu}" rungs)
    set_source_files_properties(${cu} PROPERTIES FLASH_MUTABLE ON)
    foreach(backend ${FLASH_BACKENDS})
      if(backend STREQUAL "emulated" AND FLASH_CHECK)
        continue() # the checks find all that the emulator finds, and more
      endif()
      flash_backend(${backend} suffix device)
      set(library ${part}_cuda_ladder${suffix})
      set(sources ${cu})
      if(backend STREQUAL "gpu")
        list(FILTER sources EXCLUDE REGEX "\\.sm90a\\.cu$")
      endif()
      flash_cu_library(${library} ${backend} ${sources})
      target_link_libraries(${library} PRIVATE flash_no_spills)
      if(backend STREQUAL "gpu" AND hopper)
        flash_library(${library}_sm90a OBJECT ${hopper})
        set_target_properties(${library}_sm90a PROPERTIES CUDA_ARCHITECTURES 90a-real
          CUDA_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/refuse_serialized_wgmma)
        target_link_libraries(${library}_sm90a PRIVATE flash_no_spills flash_cuda)
        target_link_libraries(${library} PRIVATE ${library}_sm90a)
      endif()
      if(backend STREQUAL "gpu")
        foreach(file ${cu})
          set(compiled_in ${library})
          if(file IN_LIST hopper)
            set(compiled_in ${library}_sm90a)
          endif()
          flash_list_library(${compiled_in} gpu ${CMAKE_CURRENT_SOURCE_DIR}/${file})
        endforeach()
      endif()
      set_target_properties(${library} PROPERTIES FLASH_RUNGS "${rungs}")
    endforeach()
  endif()
endfunction()

function(flash_ladder_isa part isa files)
  set(library ${part}_ladder_${isa})
  add_library(${library} OBJECT ${files})
  target_link_libraries(${library} PRIVATE flash_warnings)
  target_compile_definitions(${library} PRIVATE FLASH_ISA=${isa})
  target_compile_options(${library} PRIVATE -O2 ${ARGN}) # what is to be unrolled says so
  if(FLASH_SANITIZE) # UBSan's checks of all that is unrolled take the compiler two minutes
    set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "-O1;-fno-sanitize=undefined")
  endif()
  target_link_libraries(${part}_ladder PRIVATE ${library})
endfunction()

function(flash_registry name)
  cmake_parse_arguments(arg "" "" "LIBRARIES;TASKS" ${ARGN})
  set(declarations "")
  set(calls "")
  string(REGEX MATCH "_(skeleton|solution)[^;]*" suffix "${arg_TASKS}")
  foreach(library ${arg_LIBRARIES})
    get_target_property(rungs ${library} FLASH_RUNGS)
    foreach(rung ${rungs})
      string(REGEX REPLACE "^[^_]*_(.*)$" "\\1" entered ${rung})
      string(APPEND declarations
        "extern \"C\" void enter_${rung}(flash::Registry&, const char*);\n")
      string(APPEND calls "  enter_${rung}(registry, \"${entered}\");\n")
    endforeach()
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(GENERATE OUTPUT ${source} CONTENT "namespace flash {
struct Registry; // without its header, which takes the compiler most of a second
void enter_all_passes(Registry& registry);
extern const char* const kTasksPrefix = \"${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/lib\";
extern const char* const kTasksSuffix = \"${suffix}${CMAKE_SHARED_LIBRARY_SUFFIX}\";
}
${declarations}
void flash::enter_all_passes([[maybe_unused]] Registry& registry) {
${calls}}
")
  flash_library(${name} STATIC ${source})
  target_link_libraries(${name} PUBLIC flash_common ${arg_LIBRARIES} PRIVATE flash_cold)
  if(arg_TASKS)
    add_dependencies(${name} ${arg_TASKS})
  endif()
  # Some linkers drop a shared library that stands before the static libraries that need it, as
  # given code may before what enters it.
  if(NOT APPLE)
    target_link_options(${name} INTERFACE LINKER:--no-as-needed)
  endif()
endfunction()
