#include "client/ctl/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco {
namespace {

size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  CCO_ASSERT(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines[0].push_back(column.title);
  lines.insert(lines.end(), rows_.begin(), rows_.end());

  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width_of(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string blanks(widths[i] - width_of(line[i]), ' ');
      if (i > 0) out += "  ";
      out += columns_[i].align == Align::kRight ? blanks + line[i] : line[i] + blanks;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  std::string number = absl::StrFormat("%.1f", value);
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return absl::StrCat(number, " ", kUnits[unit]);
}

std::string human_duration(uint64_t milliseconds) {
  const uint64_t seconds = milliseconds / 1000;
  if (milliseconds < 1000) return absl::StrCat(milliseconds, " ms");
  if (seconds < 60) return absl::StrFormat("%.1f s", static_cast<double>(milliseconds) / 1000);
  if (seconds < 3600) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
  return absl::StrCat(seconds / 86400, " d ", seconds / 3600 % 24, " h");
}

}  // namespace cco
