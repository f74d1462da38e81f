// A line of JSON, for a program that reads it: an event of a judge, a sample of a measurement.
#pragma once

#include <cstdio>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

namespace flash {

class JsonLine {
 public:
  JsonLine() = default;
  explicit JsonLine(const std::string& event) { add("event", event); }

  // A number, true or false, a text, or a list of objects.
  template <class T>
  JsonLine& add(const std::string& name, const T& value) {
    text_ += (text_.empty() ? "{" : ", ") + quoted(name) + ": " + json(value);
    return *this;
  }

  std::string text() const { return text_ + "}"; }

  // A whole line, flushed: whoever reads it can tell where a program has ended.
  friend std::ostream& operator<<(std::ostream& out, const JsonLine& line) {
    return out << line.text() << std::endl;
  }

 private:
  template <class T>
  requires std::is_arithmetic_v<T>
  static std::string json(T value) {
    if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
    if constexpr (std::is_integral_v<T>) return std::to_string(value);
    char text[32];
    std::snprintf(text, sizeof text, "%.12g", static_cast<double>(value));
    return text;
  }
  static std::string json(const std::string& text) { return quoted(text); }
  static std::string json(const std::vector<JsonLine>& list) {
    std::string text;
    for (const JsonLine& one : list) text += (text.empty() ? "" : ", ") + one.text();
    return "[" + text + "]";
  }

  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned char>(c));
      if (static_cast<unsigned char>(c) < 0x20)
        out += escape;
      else
        out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
    return out + "\"";
  }

  std::string text_;
};

}  // namespace flash
