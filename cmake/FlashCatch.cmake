# Catch2: version 3 where there is one (Debian 13, Ubuntu 24.04), else 2.13 (Debian 12).
#
# flash_catch        what a test file links: Catch2, without a main
# flash_catch_main   the same with the main of ordinary tests
# flash_catch_headers   its headers and common ones, precompiled
find_package(Catch2 3 QUIET)
if(NOT Catch2_FOUND)
  find_package(Catch2 2.13 QUIET)
endif()
if(NOT Catch2_FOUND)
  message(FATAL_ERROR
    "Catch2 2.13 or newer is missing. On Debian and Ubuntu: apt-get install catch2")
endif()
include(Catch) # both versions put catch_discover_tests on the module path

add_library(flash_catch STATIC ${CMAKE_SOURCE_DIR}/tests/harness/catch_session.cpp)
target_include_directories(flash_catch PUBLIC ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(flash_catch PUBLIC Catch2::Catch2)
if(Catch2_VERSION VERSION_LESS 3 AND TARGET Catch2::Catch2WithMain AND CMAKE_OBJCOPY)
  # Version 2 compiles itself where its session is named: 50 s of one core. Debian's package has it
  # compiled, together with a main(), which a copy of the archive calls by another name.
  set(archive ${CMAKE_BINARY_DIR}/lib/libcatch2_without_main.a)
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/lib
    COMMAND ${CMAKE_OBJCOPY} --redefine-sym main=flash_catch2_main
    $<TARGET_FILE:Catch2::Catch2WithMain> ${archive}
    VERBATIM)
  add_custom_target(flash_catch2_archive DEPENDS ${archive})
  add_dependencies(flash_catch flash_catch2_archive)
  target_compile_definitions(flash_catch PRIVATE FLASH_CATCH2_MAIN=flash_catch2_main)
  target_link_libraries(flash_catch PUBLIC ${archive})
endif()

add_library(flash_catch_main STATIC ${CMAKE_SOURCE_DIR}/tests/harness/catch_main.cpp)
target_link_libraries(flash_catch_main PUBLIC flash_catch)

# Catch2's headers and those that most tests include, compiled once a build: they were half of the
# compiler's time for a test.
set(FLASH_TEST_HEADERS tests/harness/catch.hpp common/compare.hpp common/inputs.hpp
  common/oracle.hpp common/registry.hpp
  common/cuda/device_tensor.hpp)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/flash_catch_headers.cpp CONTENT "")
add_library(flash_catch_headers OBJECT ${CMAKE_BINARY_DIR}/flash_catch_headers.cpp)
list(TRANSFORM FLASH_TEST_HEADERS PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE headers)
target_precompile_headers(flash_catch_headers PRIVATE ${headers})
target_link_libraries(flash_catch_headers PRIVATE flash_options flash_test_options flash_catch)
