// Implements options.hpp.
#include "benchmarking/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>

namespace flash {
namespace {

using std::to_string;

// What reads a value: each gives nothing for a text that is none.
auto integer_in(std::int64_t least, std::int64_t most) {
  return [=](const std::string& text) -> std::optional<std::int64_t> {
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stop != end || number < least || number > most) return std::nullopt;
    return number;
  };
}

// Any name, where there are no choices.
auto one_of(const Strings& choices) {
  return [=](const std::string& text) -> std::optional<std::string> {
    const bool known = choices.empty() ? !text.empty() : contains(choices, text);
    return known ? std::optional(text) : std::nullopt;
  };
}

// The parts of "a,b,c"; nothing when one of them is there twice.
template <class Read>
auto list_of(Read read) {
  return [=](const std::string& text) {
    std::optional<std::vector<typename decltype(read(text))::value_type>> list(std::in_place);
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const auto part = read(text.substr(begin, end - begin));
      if (!part || std::ranges::count(*list, *part) > 0) return decltype(list)();
      list->push_back(*part);
      begin = end + 1;
    }
    return list;
  };
}

// A number of digits with at most one point, and a unit. strtod would take "1e3", "inf" and the
// locale's comma.
std::optional<std::size_t> parse_bytes(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number = text.substr(0, digits), suffix = text.substr(digits);
  double unit = 0, value = 0;
  for (const auto& [name, bytes] :
       {std::pair{"", 1.0}, {"B", 1.0}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}})
    if (suffix == name) unit = bytes;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  const double total = std::floor(value * unit);
  if (error != std::errc{} || stop != number.data() + number.size() || total < 1 || total >= 0x1p62)
    return std::nullopt;
  return static_cast<std::size_t>(total);
}

// Line ends in the place of spaces, so that the lines of the help fit a screen.
std::string wrapped(const std::string& text) {
  constexpr std::size_t kWidth = 68;
  std::string result = text;
  for (std::size_t begin = 0; result.size() - begin > kWidth;) {
    const std::size_t space = result.rfind(' ', begin + kWidth);
    if (space == std::string::npos || space <= begin) break;
    result[space] = '\n';
    begin = space + 1;
  }
  return result;
}

}  // namespace

Options::Options(const std::string& program, const std::string& purpose)
    : app_(std::make_unique<CLI::App>(purpose, program)) {
  app_->set_help_flag("--help,-h", "print this and exit");
  app_->get_formatter()->column_width(28);
}
Options::~Options() = default;

template <class Read, class Target>
void Options::add(const std::string& name, const std::string& value, const std::string& help,
                  const std::string& wanted, Read read, Target& target) {
  const auto callback = [=, &target](const std::string& typed) {
    const auto read_value = read(typed);
    if (!read_value) throw OptionError("--" + name + " is '" + typed + "'; it must be " + wanted);
    target = *read_value;
  };
  app_->add_option_function<std::string>("--" + name, callback, wrapped(help))->type_name(value);
}

void Options::flag(const std::string& name, const std::string& help, bool& target) {
  app_->add_flag("--" + name, target, wrapped(help));
}

void Options::integer(const std::string& name, const std::string& help,
                      std::optional<std::int64_t>& target, std::int64_t least, std::int64_t most) {
  add(name, "N", help, "an integer from " + to_string(least) + " to " + to_string(most),
      integer_in(least, most), target);
}

void Options::integers(const std::string& name, const std::string& help,
                       std::optional<std::vector<std::int64_t>>& target, std::int64_t least,
                       std::int64_t most) {
  add(name, "LIST", help,
      "different integers from " + to_string(least) + " to " + to_string(most) +
          " with commas between, like 16,32",
      list_of(integer_in(least, most)), target);
}

void Options::choice(const std::string& name, const std::string& help,
                     std::optional<std::string>& target, const Strings& choices) {
  const std::string all = joined(choices, "|");
  add(name, all, help, "one of " + all, one_of(choices), target);
}

void Options::names(const std::string& name, const std::string& help,
                    std::optional<Strings>& target) {
  add(name, "LIST", help, "different names with commas between", list_of(one_of({})), target);
}

void Options::bytes(const std::string& name, const std::string& help,
                    std::optional<std::size_t>& target) {
  add(name, "BYTES", help, "at least 1 byte, like 4096, 512MiB or 1.5GiB", parse_bytes, target);
}

void Options::file(const std::string& name, const std::string& help,
                   std::filesystem::path& target) {
  add(name, "FILE", help, "the name of a file", one_of({}), target);
}

bool Options::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app_->help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw OptionError(std::string(error.what()) + "; --help lists the options");
  }
  return true;
}

}  // namespace flash
