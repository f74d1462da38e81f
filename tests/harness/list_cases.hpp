// What the cases of measure_all() share, which parts 1 and 3 have for rows of their own: lists of
// made-up configurations, and verdicts on their rows.
//
// A part is a struct with its types Configuration, Row and Measurement, and with static functions
// that look into a row: status(row), message(row), and numbers(row), a vector of all its numbers.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "harness/graded_case.hpp"

namespace flash::harness {

// A configuration, and how its row has to be.
template <class Part>
struct Planned {
  std::string name;
  std::string how;  // completes "its run() ..."
  std::function<typename Part::Measurement()> run;
  std::string status = "ok", message = "";
  std::vector<double> numbers = {};  // empty: all are 0
};

inline constexpr const char* kReason = "a made-up reason";

template <class Part, class Exception>
Planned<Part> throwing(const std::string& type, const std::string& status) {
  return {.name = "one that throws " + type,
          .how = "threw " + type,
          .run = []() -> typename Part::Measurement { throw Exception(kReason); },
          .status = status,
          .message = kReason};
}

// One for each kind of exception, and before, between and behind them `good`.
template <class Part>
std::vector<Planned<Part>> failures_between(const Planned<Part>& good) {
  return {good, throwing<Part, OutOfMemory>("OutOfMemory", "OOM"),
          good, throwing<Part, Unsupported>("Unsupported", "unsupported"),
          good, throwing<Part, CudaError>("CudaError", "error"),
          good, throwing<Part, std::runtime_error>("std::runtime_error", "error"),
          good};
}

// What is wrong with a row, as the end of a sentence, or "".
template <class Part>
using JudgeRow = std::string (*)(const typename Part::Row&, const Planned<Part>&);

template <class Part>
std::string judge_status(const typename Part::Row& row, const Planned<Part>& planned) {
  if (Part::status(row) == planned.status) return "";
  return "has the status '" + Part::status(row) + "'; it must be '" + planned.status + "'.";
}

template <class Part>
std::string judge_message(const typename Part::Row& row, const Planned<Part>& planned) {
  const std::string found = Part::message(row);
  if (planned.message.empty())
    return found.empty() ? "" : "has the message '" + found + "'; it must be empty.";
  if (found.find(planned.message) != std::string::npos) return "";
  return "has the message '" + found + "'; it must hold '" + planned.message + "'.";
}

template <class Part>
std::string judge_numbers(const typename Part::Row& row, const Planned<Part>& planned) {
  const std::vector<double> found = Part::numbers(row);
  std::vector<double> want = planned.numbers;
  want.resize(found.size());
  if (found == want) return "";
  return planned.numbers.empty() ? "has numbers, and nothing was measured: each must be 0."
                                 : "does not have the numbers of that measurement.";
}

// Runs the list: each configuration once and in its turn, and one row for each, with its name.
// Of the rows, `judges` say the rest.
template <class Part>
Verdict judge_rows(const std::vector<Planned<Part>>& list,
                   const std::vector<JudgeRow<Part>>& judges = {}) {
  std::vector<typename Part::Configuration> configurations;
  std::vector<std::size_t> ran;
  for (std::size_t i = 0; i < list.size(); ++i)
    configurations.push_back({list[i].name, [&, i] {
                                ran.push_back(i);
                                return list[i].run();
                              }});
  std::vector<typename Part::Row> rows;
  try {
    rows = measure_all(configurations);
  } catch (const NotYetImplemented&) {
    throw;
  } catch (const std::exception& error) {
    return {false, std::string("measure_all() threw '") + error.what() + "' when " +
                       std::to_string(ran.size()) + " of " + std::to_string(list.size()) +
                       " configurations had run: what run() throws must become a row, and the next "
                       "configuration must run."};
  }
  std::vector<std::size_t> each(list.size());
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = i;
  if (ran != each || rows.size() != list.size())
    return {false, "Of " + std::to_string(list.size()) + " configurations, " +
                       std::to_string(ran.size()) + " were run, and " +
                       std::to_string(rows.size()) +
                       " rows came back: each has to run once, in the order of the list, and to "
                       "give one row."};
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string row = "Row " + std::to_string(i) + ", whose run() " + list[i].how + ", ";
    if (rows[i].name != list[i].name)
      return {false, row + "has the name '" + rows[i].name + "'; it must be '" + list[i].name +
                         "', that of its configuration."};
    for (const JudgeRow<Part> judge : judges)
      if (const std::string wrong = judge(rows[i], list[i]); !wrong.empty())
        return {false, row + wrong};
  }
  return {true, ""};
}

}  // namespace flash::harness
