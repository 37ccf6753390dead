// Tables and quantities for people. Programs take --json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cco {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

/// Cells in columns as wide as their widest cell (counted in characters, for UTF-8).
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as there are columns.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// A line of titles and one for each row; no line ends in blanks.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "512 B", "4 GiB", "1.5 GiB": at most one decimal.
std::string human_bytes(uint64_t bytes);
/// "12 ms", "3.4 s", "5 min 12 s", "3 h 20 min", "4 d 2 h".
std::string human_duration(uint64_t milliseconds);

}  // namespace cco
