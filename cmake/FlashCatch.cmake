# Catch2: version 3 where there is one (Debian 13, Ubuntu 24.04), else 2.13 (Debian 12).
#
# flash_catch        what a test file links: Catch2, without a main
# flash_catch_main   the same with the main of ordinary tests
find_package(Catch2 3 QUIET)
if(NOT Catch2_FOUND)
  find_package(Catch2 2.13 QUIET)
endif()
if(NOT Catch2_FOUND)
  message(FATAL_ERROR "Catch2 2.13 or newer is missing. On Debian and Ubuntu: apt-get install catch2")
endif()
include(Catch) # both versions put catch_discover_tests on the module path

add_library(flash_catch STATIC ${CMAKE_SOURCE_DIR}/tests/harness/catch_session.cpp)
target_include_directories(flash_catch PUBLIC ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(flash_catch PUBLIC Catch2::Catch2)
target_compile_options(flash_catch PRIVATE -O1) # for code that no test waits for, at -O3 twice the time

add_library(flash_catch_main STATIC ${CMAKE_SOURCE_DIR}/tests/harness/catch_main.cpp)
target_link_libraries(flash_catch_main PUBLIC flash_catch)
