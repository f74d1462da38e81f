// The command line of a benchmark. See options.hpp.
#include "benchmarking/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <limits>
#include <set>

namespace flash {
namespace {

OptionError wrong_value(const std::string& name, const std::string& typed, const std::string& wanted) {
  return OptionError("--" + name + " is '" + typed + "'; it must be " + wanted);
}

std::optional<std::int64_t> parse_integer(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

// A number of digits with at most one point, and a unit. strtod would take "1e3", "inf" and the locale's comma.
std::optional<std::size_t> parse_bytes(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number = text.substr(0, digits), suffix = text.substr(digits);
  double unit = 0;
  for (const auto& [name, bytes] : {std::pair{"", 1.0}, {"B", 1.0}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}})
    if (suffix == name) unit = bytes;
  double value = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (unit == 0 || error != std::errc{} || stop != number.data() + number.size()) return std::nullopt;
  const double total = std::floor(value * unit);
  if (!(total >= 1 && total < 0x1p62)) return std::nullopt;
  return static_cast<std::size_t>(total);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::string range(std::int64_t least, std::int64_t most) {
  return "from " + std::to_string(least) + " to " + std::to_string(most);
}

}  // namespace

Options::Options(std::string program, std::string purpose) : program_(std::move(program)), purpose_(std::move(purpose)) {}

void Options::add(Option option) { options_.push_back(std::move(option)); }

void Options::flag(const std::string& name, const std::string& help, bool& target) {
  add({name, "", help, [&target](const std::string&) { target = true; }});
}

void Options::integer(const std::string& name, const std::string& value, const std::string& help,
                      std::optional<std::int64_t>& target, std::int64_t least, std::int64_t most) {
  add({name, value, help, [=, &target](const std::string& typed) {
         const auto number = parse_integer(typed);
         if (!number || *number < least || *number > most)
           throw wrong_value(name, typed, "an integer " + range(least, most));
         target = *number;
       }});
}

void Options::integers(const std::string& name, const std::string& help, std::optional<std::vector<std::int64_t>>& target,
                       std::int64_t least, std::int64_t most) {
  add({name, "LIST", help, [=, &target](const std::string& typed) {
         std::vector<std::int64_t> numbers;
         for (const std::string& part : split(typed, ',')) {
           const auto number = parse_integer(part);
           const bool repeated = number && std::find(numbers.begin(), numbers.end(), *number) != numbers.end();
           if (!number || *number < least || *number > most || repeated)
             throw wrong_value(name, typed, "different integers " + range(least, most) + " with commas between, like 16,32");
           numbers.push_back(*number);
         }
         target = numbers;
       }});
}

void Options::choice(const std::string& name, const std::string& help, std::optional<std::string>& target,
                     const std::vector<std::string>& choices) {
  std::string all;
  for (const std::string& choice : choices) all += (all.empty() ? "" : "|") + choice;
  add({name, all, help, [=, &target](const std::string& typed) {
         if (std::find(choices.begin(), choices.end(), typed) == choices.end())
           throw wrong_value(name, typed, "one of " + all);
         target = typed;
       }});
}

void Options::choices(const std::string& name, const std::string& help, std::optional<std::vector<std::string>>& target,
                      const std::vector<std::string>& choices) {
  std::string all;
  for (const std::string& choice : choices) all += (all.empty() ? "" : ", ") + choice;
  add({name, "LIST", help, [=, &target](const std::string& typed) {
         std::vector<std::string> chosen;
         for (const std::string& part : split(typed, ',')) {
           const bool known = std::find(choices.begin(), choices.end(), part) != choices.end();
           if (!known || std::find(chosen.begin(), chosen.end(), part) != chosen.end())
             throw wrong_value(name, typed, "different names with commas between, of: " + all);
           chosen.push_back(part);
         }
         target = chosen;
       }});
}

void Options::bytes(const std::string& name, const std::string& help, std::optional<std::size_t>& target) {
  add({name, "BYTES", help, [=, &target](const std::string& typed) {
         const auto bytes = parse_bytes(typed);
         if (!bytes) throw wrong_value(name, typed, "at least 1 byte, like 4096, 512MiB or 1.5GiB");
         target = *bytes;
       }});
}

void Options::file(const std::string& name, const std::string& help, std::filesystem::path& target) {
  add({name, "FILE", help, [=, &target](const std::string& typed) {
         if (typed.empty()) throw wrong_value(name, typed, "the name of a file");
         target = typed;
       }});
}

const Options::Option& Options::find(const std::string& name) const {
  for (const Option& option : options_)
    if (option.name == name) return option;
  throw OptionError("--" + name + " is not an option of " + program_ + "; --help lists them");
}

bool Options::parse(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (std::any_of(words.begin(), words.end(), [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    std::cout << help();
    return false;
  }

  std::set<std::string> seen;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].size() < 3 || words[i].substr(0, 2) != "--")
      throw OptionError("'" + words[i] + "' is not expected here; options begin with --, and --help lists them");
    const std::size_t equals = words[i].find('=');
    const Option& option = find(words[i].substr(2, equals == std::string::npos ? equals : equals - 2));
    if (!seen.insert(option.name).second) throw OptionError("--" + option.name + " is given twice; once is enough");

    if (option.value.empty()) {
      if (equals != std::string::npos) throw OptionError("--" + option.name + " takes no value; write it without '='");
      option.assign("");
    } else if (equals != std::string::npos) {
      option.assign(words[i].substr(equals + 1));
    } else {
      if (i + 1 == words.size() || words[i + 1].substr(0, 2) == "--")
        throw OptionError("--" + option.name + " has no value; write --" + option.name + " " + option.value);
      option.assign(words[++i]);
    }
  }
  return true;
}

std::string Options::help() const {
  constexpr std::size_t kColumn = 26;
  std::string text = purpose_ + "\n\nUsage: " + program_ + " [options]\n\n";
  const auto line = [&](const Option& option) {
    std::string left = "  --" + option.name + (option.value.empty() ? "" : " " + option.value);
    left.resize(std::max(left.size() + 2, kColumn), ' ');
    text += left;
    for (const char c : option.help) {
      text += c;
      if (c == '\n') text += std::string(kColumn, ' ');
    }
    text += "\n";
  };
  for (const Option& option : options_) line(option);
  line({"help", "", "print this and exit", nullptr});
  return text;
}

}  // namespace flash
