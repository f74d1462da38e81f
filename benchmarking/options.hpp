// The command line of a benchmark: declare the options, parse, and have every mistake answered in one line.
//
//   Options options("bench_example", "Times an example.");
//   options.integer("passes", "N", "timed passes", passes, 1, 1000000);
//   if (!options.parse(argc, argv)) return 0;      // --help was asked for, and printed
//
// An option's target keeps its value unless the option is given, so defaults are the targets' own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/error.hpp"

namespace flash {

// What was typed cannot be used: "--passes is 'ten'; it must be an integer from 1 to 1000000". Programs exit with 2.
class OptionError : public ArgumentError {
 public:
  using ArgumentError::ArgumentError;
};

class Options {
 public:
  Options(std::string program, std::string purpose);

  // `name` is written without its dashes; `value` names the value in the help text. Targets outlive parse().
  void flag(const std::string& name, const std::string& help, bool& target);
  void integer(const std::string& name, const std::string& value, const std::string& help,
               std::optional<std::int64_t>& target, std::int64_t least, std::int64_t most);
  // "64,128,256"; duplicates are refused.
  void integers(const std::string& name, const std::string& help, std::optional<std::vector<std::int64_t>>& target,
                std::int64_t least, std::int64_t most);
  void choice(const std::string& name, const std::string& help, std::optional<std::string>& target,
              const std::vector<std::string>& choices);
  // "standard,flash"; duplicates are refused.
  void choices(const std::string& name, const std::string& help, std::optional<std::vector<std::string>>& target,
               const std::vector<std::string>& choices);
  // A number of bytes, at least 1: "4096", "512MiB", "1.5GiB" (1 MiB = 2^20 bytes).
  void bytes(const std::string& name, const std::string& help, std::optional<std::size_t>& target);
  void file(const std::string& name, const std::string& help, std::filesystem::path& target);

  // Reads "--name value" and "--name=value". Returns false when --help is among them, after printing help() on stdout.
  // Throws OptionError at the first thing that is wrong.
  bool parse(int argc, const char* const* argv);

  std::string help() const;

 private:
  struct Option {
    std::string name;
    std::string value;  // empty: a flag
    std::string help;
    std::function<void(const std::string& typed)> assign;
  };

  void add(Option option);
  const Option& find(const std::string& name) const;

  std::string program_;
  std::string purpose_;
  std::vector<Option> options_;
};

}  // namespace flash
