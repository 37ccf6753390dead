// Passes a rank's output on in whole lines.
#pragma once

#include <string>
#include <string_view>

namespace cco::ctl {

/// Cuts a stream into lines and puts a prefix before each.
class LinePrefixer {
 public:
  /// Longer lines are cut into pieces of this size, so that a stream without newlines needs no more
  /// memory than this.
  static constexpr size_t kMaxLineBytes = 65536;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  /// The complete lines that are there after `bytes`; the rest waits.
  std::string feed(std::string_view bytes) {
    std::string lines;
    for (;;) {
      const size_t end = bytes.find('\n');
      if (end == std::string_view::npos) break;
      partial_.append(bytes.substr(0, end));
      take_line(&lines);
      bytes.remove_prefix(end + 1);
    }
    partial_.append(bytes);
    while (partial_.size() >= kMaxLineBytes) {
      lines += prefix_ + partial_.substr(0, kMaxLineBytes) + "\n";
      partial_.erase(0, kMaxLineBytes);
    }
    return lines;
  }

  /// At the end of the stream: a last line without a newline gets one.
  std::string finish() {
    std::string lines;
    if (!partial_.empty()) take_line(&lines);
    return lines;
  }

 private:
  void take_line(std::string* lines) {
    *lines += prefix_ + partial_ + "\n";
    partial_.clear();
  }

  std::string prefix_;
  std::string partial_;
};

}  // namespace cco::ctl
