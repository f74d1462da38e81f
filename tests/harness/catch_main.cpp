// main() of the ordinary tests; graded ones have graded_main.cpp.
#include "harness/catch_session.hpp"

int main(int argc, char** argv) { return flash::harness::run_catch2(argc, argv); }
