// The rows of measure_all() on their way from the runner to the judge, for parts 1 and 3.
//
// The judge's configurations cannot leave it. The runner has one for each that asks the judge to
// run it, and its name is its number.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "grading/judge/protocol.hpp"

namespace flash::grading {

inline constexpr char kEndOfCell = '\x1f', kEndOfRow = '\x1e';  // no text of a case has them

// What is in a row: name, status, message and numbers, all as text.
using SentRow = std::vector<std::string>;

inline void put_number(SentRow& row, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  row.push_back(text);
}

// 0 where there is none.
inline double number_in(const SentRow& row, std::size_t cell) {
  return cell < row.size() ? std::strtod(row[cell].c_str(), nullptr) : 0;
}

inline void put_rows(Message& done, const std::vector<SentRow>& rows) {
  std::string text;
  for (const SentRow& row : rows) {
    for (const std::string& cell : row) text += cell + kEndOfCell;
    text += kEndOfRow;
  }
  std::snprintf(done.text, kMostText, "%s", text.c_str());
}

// Rows with at least three cells, whatever the runner sent.
inline std::vector<SentRow> rows_in(const Message& done) {
  std::vector<SentRow> rows;
  SentRow row;
  std::string cell;
  for (const char* at = done.text; *at != '\0'; ++at) {
    if (*at == kEndOfCell) {
      row.push_back(cell);
      cell.clear();
    } else if (*at == kEndOfRow) {
      row.resize(row.size() < 3 ? 3 : row.size());
      rows.push_back(row);
      row.clear();
    } else {
      cell += *at;
    }
  }
  return rows;
}

}  // namespace flash::grading
