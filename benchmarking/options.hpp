// The command line of a benchmark, by CLI11: declare the options, parse. Every mistake is answered
// in one line, which names the option, the value and what it had to be.
//
//   Options options("bench_example", "Times an example.");
//   options.integer("passes", "timed passes", passes, 1, 1000000);
//   if (!options.parse(argc, argv)) return 0;      // --help was asked for, and printed
//
// A target keeps its value unless its option is given, so the defaults are the targets' own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarking/program.hpp"
#include "common/error.hpp"

namespace CLI {
class App;  // it takes 3.8 s to compile: in options.cpp only
}

namespace flash {

// The command line cannot be used: "--passes: Value ten not in range 1 to 1000000". Programs exit
// with 2.
class OptionError : public ArgumentError {
 public:
  using ArgumentError::ArgumentError;
};

class Options {
 public:
  Options(const std::string& program, const std::string& purpose);
  ~Options();

  // `name` is written without its dashes; "impl,--forward" has two. Targets outlive parse().
  void flag(const std::string& name, const std::string& help, bool& target);
  void integer(const std::string& name, const std::string& help,
               std::optional<std::int64_t>& target, std::int64_t least, std::int64_t most);
  // "64,128,256"
  void integers(const std::string& name, const std::string& help,
                std::optional<std::vector<std::int64_t>>& target, std::int64_t least,
                std::int64_t most);
  void choice(const std::string& name, const std::string& help, std::optional<std::string>& target,
              const Strings& choices);
  // "standard,flash"
  void names(const std::string& name, const std::string& help, std::optional<Strings>& target);
  // A number of bytes, at least 1: "4096", "512MiB", "1.5GiB" (1 MiB = 2^20 bytes).
  void bytes(const std::string& name, const std::string& help, std::optional<std::size_t>& target);
  void file(const std::string& name, const std::string& help, std::filesystem::path& target);

  // Returns false when --help is among them, after printing the help. Throws OptionError.
  bool parse(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace flash
