#include "client/ctl/output_line.h"

#include <gtest/gtest.h>

namespace cco::ctl {
namespace {

// Goal    lines are passed on whole, however the stream is cut.
// Method  feed the same text in every way of cutting it into two pieces.
TEST(LinePrefixer, PutsLinesTogetherFromPieces) {
  const std::string text = "one\ntwo\n\nthree\n";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    LinePrefixer lines("[7] ");
    std::string out = lines.feed(text.substr(0, cut));
    out += lines.feed(text.substr(cut));
    out += lines.finish();
    EXPECT_EQ(out, "[7] one\n[7] two\n[7] \n[7] three\n") << "cut after " << cut;
  }
}

// Goal    a partial line waits for its end, and gets a newline at the end of the stream.
// Method  feed a line without one.
TEST(LinePrefixer, HoldsPartialLinesUntilTheEnd) {
  LinePrefixer lines("[0] ");
  EXPECT_EQ(lines.feed("half"), "");
  EXPECT_EQ(lines.feed(" line"), "");
  EXPECT_EQ(lines.finish(), "[0] half line\n");
  EXPECT_EQ(lines.finish(), "");
}

// Goal    a stream without newlines needs bounded memory.
// Method  feed three and a half limits of one character; count pieces.
TEST(LinePrefixer, CutsEndlessLines) {
  LinePrefixer lines("> ");
  const size_t limit = LinePrefixer::kMaxLineBytes;
  const std::string out = lines.feed(std::string(limit * 7 / 2, 'x'));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3);
  EXPECT_EQ(lines.finish().size(), 2 + limit / 2 + 1);
}

}  // namespace
}  // namespace cco::ctl
