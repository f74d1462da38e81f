#include "benchmarking/options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <iostream>

namespace flash {
namespace {

// A number of digits with at most one point, and a unit. strtod would take "1e3", "inf" and the
// locale's comma; CLI11 takes whole numbers only.
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

template <class T>
CLI::Option* add(CLI::App& app, const std::string& name, const std::string& value,
                 const std::string& help, std::function<void(const T&)> keep) {
  return app.add_option_function("--" + name, keep, wrapped(help))->option_text(value);
}

template <class T>
CLI::Option* add_list(CLI::App& app, const std::string& name, const std::string& help,
                      std::optional<std::vector<T>>& target) {
  return add<std::vector<T>>(app, name, "LIST", help, [&](const auto& list) { target = list; })
      ->delimiter(',')
      ->allow_extra_args(false);
}

}  // namespace

Options::Options(const std::string& program, const std::string& purpose)
    : app_(std::make_unique<CLI::App>(purpose, program)) {
  app_->set_help_flag("--help,-h", "print this and exit");
  app_->get_formatter()->column_width(28);
}
Options::~Options() = default;

void Options::flag(const std::string& name, const std::string& help, bool& target) {
  app_->add_flag("--" + name, target, wrapped(help));
}

void Options::integer(const std::string& name, const std::string& help,
                      std::optional<std::int64_t>& target, std::int64_t least, std::int64_t most) {
  add<std::int64_t>(*app_, name, "N", help, [&](std::int64_t number) {
    target = number;
  })->check(CLI::Range(least, most).description(""));
}

void Options::integers(const std::string& name, const std::string& help,
                       std::optional<std::vector<std::int64_t>>& target, std::int64_t least,
                       std::int64_t most) {
  add_list(*app_, name, help, target)->check(CLI::Range(least, most).description(""));
}

void Options::choice(const std::string& name, const std::string& help,
                     std::optional<std::string>& target, const Strings& choices) {
  const std::string all = joined(choices, "|");
  add<std::string>(*app_, name, all, help, [&](const auto& text) {
    target = text;
  })->check(CLI::IsMember(choices).description(""));
}

void Options::names(const std::string& name, const std::string& help,
                    std::optional<Strings>& target) {
  add_list(*app_, name, help, target);
}

void Options::bytes(const std::string& name, const std::string& help,
                    std::optional<std::size_t>& target) {
  add<std::string>(*app_, name, "BYTES", help, [&, name](const std::string& text) {
    target = parse_bytes(text);
    if (!target)
      throw OptionError("--" + name + " is '" + text +
                        "'; it must be at least 1 byte, like 4096, 512MiB or 1.5GiB");
  });
}

void Options::file(const std::string& name, const std::string& help,
                   std::filesystem::path& target) {
  add<std::string>(*app_, name, "FILE", help, [&](const auto& text) {
    target = text;
  })->check([](const std::string& text) { return text.empty() ? "it is empty" : ""; });
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
