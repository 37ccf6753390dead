#include "client/ctl/table.h"

#include <gtest/gtest.h>

namespace cco {
namespace {

// Goal    columns line up, whatever the cells hold, and no line ends in blanks.
// Method  compare a table of short, long, empty and multi-byte cells with the expected text.
TEST(Table, AlignsColumnsByCharacters) {
  Table table({{"NAME"}, {"SIZE", Align::kRight}, {"STATE"}});
  table.add({"a", "1", "ok"});
  table.add({"größer", "1024", ""});
  EXPECT_EQ(table.text(),
            "NAME    SIZE  STATE\n"
            "a          1  ok\n"
            "größer  1024\n");
}

// Goal    a table without rows is its titles, and knows that it is empty.
// Method  print one.
TEST(Table, WithoutRowsHasTitles) {
  const Table table({{"A"}, {"B"}});
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.text(), "A  B\n");
}

// Goal    a row that does not fit its columns is a broken promise, not a crooked table.
// Method  add one in a death test.
TEST(TableDeathTest, RefusesRowsOfAnotherWidth) {
  Table table({{"A"}, {"B"}});
  EXPECT_DEATH(table.add({"only one"}), "cells.size\\(\\) == columns_.size\\(\\)");
}

// Goal    sizes carry the largest fitting unit and at most one decimal.
// Method  both sides of unit borders, and the extremes.
TEST(HumanBytes, TakesTheLargestFittingUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(64ull << 20), "64 MiB");
  EXPECT_EQ(human_bytes(141ull << 30), "141 GiB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "16 EiB");
}

// Goal    durations show two neighbouring units.
// Method  both sides of unit borders.
TEST(HumanDuration, ShowsTwoUnits) {
  EXPECT_EQ(human_duration(999), "999 ms");
  EXPECT_EQ(human_duration(3400), "3.4 s");
  EXPECT_EQ(human_duration(60'000), "1 min 0 s");
  EXPECT_EQ(human_duration(3'600'000), "1 h 0 min");
  EXPECT_EQ(human_duration(86'400'000ull * 4 + 7'200'000), "4 d 2 h");
}

}  // namespace
}  // namespace cco
