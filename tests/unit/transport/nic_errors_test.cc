#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "tests/unit/transport/nic_rig.h"

namespace cco {
namespace {

using testing::NicRig;

const char* const kFormats[] = {"mlx5", "bnxt", "ionic"};

struct Case {
  const char* name;
  const char* format;
  std::function<void(NicRig&)> post;  ///< Posts one entry and spoils it, or what announces it.
  NicFault fault;
  const char* text;  ///< Part of what the status says.
  bool rings = true;
};

// What is expected after `post` has announced something wrong: the right syndrome and text,
// nothing moved, nothing performed after it, and all of it reported as flushed.
void expect_refused(NicRig& rig, const Case& wrong) {
  rig.run(rig.add(0, 1));
  ASSERT_TRUE(rig.nic().status().ok()) << rig.nic().status();
  const size_t calls = rig.port().calls.size();

  wrong.post(rig);
  if (wrong.rings) rig.ring();
  rig.step_until_idle();
  const uint32_t syndrome = rig.format().syndrome(wrong.fault);
  EXPECT_EQ(rig.look().syndrome, syndrome);
  const std::string text(rig.nic().status().message());
  EXPECT_TRUE(absl::StrContains(text, wrong.text)) << text;
  EXPECT_TRUE(absl::StrContains(text, absl::StrFormat("syndrome %#x", syndrome))) << text;
  EXPECT_TRUE(absl::StrContains(text, "to rank 1")) << text;

  rig.run(rig.add(0, 1));
  rig.run(rig.nothing());
  EXPECT_EQ(rig.signal(1, 0), 1u) << "performed in a failed queue";
  EXPECT_EQ(rig.port().calls.size(), calls);
  EXPECT_EQ(std::string(rig.nic().status().message()), text) << "only the first error counts";
  if (std::string(wrong.format) == "ionic") {
    EXPECT_EQ(rig.look().syndrome, syndrome) << "it reports the first error alone";
  } else {
    EXPECT_EQ(rig.look().syndrome, rig.format().syndrome(NicFault::kFlushed));
    EXPECT_EQ(rig.look().units, rig.posted_units());
  }
}

void expect_all_refused(const std::vector<Case>& cases) {
  for (const Case& wrong : cases) {
    SCOPED_TRACE(absl::StrFormat("%s, %s", wrong.format, wrong.name));
    NicRig rig({.format = wrong.format});
    expect_refused(rig, wrong);
  }
}

// Posts a good entry and then sets bytes of it.
std::function<void(NicRig&)> spoil(std::function<NicOperation(const NicRig&)> make,
                                   std::vector<std::pair<uint32_t, uint8_t>> bytes) {
  return [=](NicRig& rig) {
    rig.post(make(rig));
    for (const auto& [at, value] : bytes) rig.byte(at) = value;
  };
}
std::function<void(NicRig&)> spoil_write(std::vector<std::pair<uint32_t, uint8_t>> bytes) {
  return spoil([](const NicRig& rig) { return rig.write(0, 64, 16); }, std::move(bytes));
}
std::function<void(NicRig&)> spoil_add(std::vector<std::pair<uint32_t, uint8_t>> bytes) {
  return spoil([](const NicRig& rig) { return rig.add(8, 1); }, std::move(bytes));
}
std::function<void(NicRig&)> spoil_inline(std::vector<std::pair<uint32_t, uint8_t>> bytes) {
  return spoil(
      [](const NicRig& rig) {
        return rig.inline_write(64, {1, 2, 3, 4});
      },
      std::move(bytes));
}
// Posts a good entry and rings with these bits of the doorbell changed.
std::function<void(NicRig&)> spoil_doorbell(uint64_t bits) {
  return [=](NicRig& rig) {
    rig.post(rig.nothing());
    rig.ring();
    rig.set_doorbell(rig.doorbell_value() ^ bits);
  };
}

constexpr NicFault kOperation = NicFault::kQueueOperation;

// Goal    every malformed ConnectX entry is named, and ends its queue.
// Method  one wrong field at a time.
TEST(NicErrors, Mlx5Entries) {
  const auto read = [](const NicRig& rig) { return rig.read(0, 0, 8); };
  const auto swap = [](const NicRig& rig) {
    NicOperation operation = rig.add(8, 1);
    operation.opcode = NicOpcode::kCompareSwap;
    return operation;
  };
  const auto nop = [](const NicRig& rig) { return rig.nothing(); };
  expect_all_refused({
      {"index", "mlx5", spoil_write({{2, 0x77}}), kOperation, "index is 0x77 instead of 0x1"},
      {"queue pair", "mlx5", spoil_write({{6, 0x77}}), kOperation, "0x177 instead of 0x12a"},
      {"no segment", "mlx5", spoil_write({{7, 0}}), kOperation, "a count of 0 segments"},
      {"64 segments", "mlx5", spoil_write({{7, 64}}), kOperation, "a count of 64 segments"},
      {"63 segments", "mlx5", spoil_write({{7, 63}}), kOperation, "an entry of 63 segments"},
      {"past the end", "mlx5", spoil_write({{7, 5}}), kOperation, "reaches past"},
      {"bare write", "mlx5", spoil_write({{7, 1}}), kOperation, "does not have 1 segments"},
      {"bare read", "mlx5", spoil(read, {{7, 1}}), kOperation, "does not have 1 segments"},
      {"long NOP", "mlx5", spoil(nop, {{7, 3}}), kOperation, "does not have 3 segments"},
      {"two places", "mlx5", spoil_write({{7, 4}}), kOperation, "a write from several places"},
      {"two targets", "mlx5", spoil(read, {{7, 4}}), kOperation, "a read into several places"},
      {"send", "mlx5", spoil_write({{3, 0x0a}}), kOperation, "opcode 0xa"},
      {"wait", "mlx5", spoil_write({{3, 0x0f}}), kOperation, "opcode 0xf"},
      {"opmod", "mlx5", spoil_write({{0, 9}}), kOperation, "opmod 9"},
      {"signature", "mlx5", spoil_write({{8, 1}}), kOperation, "control segment are not zero"},
      {"stream", "mlx5", spoil_write({{10, 1}}), kOperation, "control segment are not zero"},
      {"fence", "mlx5", spoil_write({{11, 0x18}}), kOperation, "control segment are not zero"},
      {"immediate", "mlx5", spoil_write({{15, 1}}), kOperation, "an immediate"},
      {"reserved", "mlx5", spoil_write({{31, 1}}), kOperation, "remote address segment are not"},
      {"no bytes", "mlx5", spoil_write({{35, 0}}), kOperation, "a data segment of byte count 0"},
      {"over 1 GiB", "mlx5", spoil_write({{32, 0x40}}), NicFault::kLength, "1073741840 bytes"},
      {"just under 2 GiB", "mlx5", spoil_write({{32, 0x7f}}), NicFault::kLength, "a message of"},
      {"2 GiB", "mlx5", spoil_write({{32, 0x80}, {33, 1}}), kOperation, "inline bytes in 1"},
      {"inline", "mlx5", spoil_inline({{35, 13}}), kOperation, "13 inline bytes in 1 segments"},
      {"short inline", "mlx5", spoil_inline({{7, 4}}), kOperation, "4 inline bytes in 2"},
      {"result of 4", "mlx5", spoil_add({{51, 4}}), kOperation, "a result of 4 bytes"},
      {"no result", "mlx5", spoil_add({{7, 3}}), kOperation, "does not have 3 segments"},
      {"32 bits", "mlx5", spoil(swap, {{0, 8}}), kOperation, "operand size 8"},
      {"short swap", "mlx5", spoil(swap, {{7, 4}}), kOperation, "does not have 4 segments"},
      {"fields", "mlx5", spoil_add({{0, 9}, {3, 0x15}, {47, 1}}), kOperation, "boundaries"},
      {"long DUMP", "mlx5", spoil_write({{3, 0x23}}), kOperation, "does not have 3 segments"},
  });
}

// Goal    every malformed Thor2 entry and MSN entry is named, and ends its queue.
// Method  as Mlx5Entries.
TEST(NicErrors, BnxtEntries) {
  const auto spoil_msn = [](uint32_t at) {
    return [=](NicRig& rig) {
      rig.post(rig.write(0, 0, 5000));
      rig.msn_byte(at) ^= 1;
    };
  };
  const auto spoil_read = [](std::vector<std::pair<uint32_t, uint8_t>> bytes) {
    return spoil([](const NicRig& rig) { return rig.read(0, 0, 8); }, std::move(bytes));
  };
  expect_all_refused({
      {"reserved", "bnxt", spoil_write({{3, 1}}), kOperation, "header are not zero"},
      {"flag", "bnxt", spoil_write({{1, 0x21}}), kOperation, "header are not zero"},
      {"no slots", "bnxt", spoil_write({{2, 0}}), kOperation, "does not have 0 slots"},
      {"one slot", "bnxt", spoil_write({{2, 1}}), kOperation, "does not have 1 slots"},
      {"two slots", "bnxt", spoil_write({{2, 2}}), kOperation, "does not have 2 slots"},
      {"nine slots", "bnxt", spoil_write({{2, 9}}), kOperation, "an entry of 9 slots"},
      {"past the end", "bnxt", spoil_write({{2, 4}}), kOperation, "reaches past"},
      {"send", "bnxt", spoil_write({{0, 0}}), kOperation, "opcode 0"},
      {"immediate", "bnxt", spoil_write({{0, 5}}), kOperation, "opcode 0x5"},
      {"key", "bnxt", spoil_write({{4, 1}}), kOperation, "entry are not zero"},
      {"operation", "bnxt", spoil_write({{31, 1}}), kOperation, "entry are not zero"},
      {"lengths", "bnxt", spoil_write({{44, 8}}), kOperation, "the place in memory 8"},
      {"over 1 GiB", "bnxt", spoil_write({{11, 0x40}}), NicFault::kLength, "1073741840 bytes"},
      {"over 4 GiB", "bnxt", spoil_write({{12, 1}}), NicFault::kLength, "4294967312 bytes"},
      {"inline read", "bnxt", spoil_read({{1, 0x11}}), kOperation, "with inline bytes"},
      {"inline add", "bnxt", spoil_add({{1, 0x11}}), kOperation, "with inline bytes"},
      {"inline", "bnxt", spoil_inline({{8, 17}}), kOperation, "does not have 3 slots"},
      {"long inline", "bnxt", spoil_inline({{8, 97}}), NicFault::kLength, "97 inline bytes"},
      {"add of 4", "bnxt", spoil_add({{44, 4}}), kOperation, "the place in memory 4"},
      {"short add", "bnxt", spoil_add({{2, 2}}), kOperation, "does not have 2 slots"},
      {"start packet", "bnxt", spoil_msn(0), kOperation, "of the MSN table"},
      {"next packet", "bnxt", spoil_msn(3), kOperation, "of the MSN table"},
      {"start slot", "bnxt", spoil_msn(6), kOperation, "of the MSN table"},
  });
}

// Goal    every malformed Pollara entry is named, and ends its queue.
// Method  as Mlx5Entries.
TEST(NicErrors, IonicEntries) {
  const auto spoil_read = [](std::vector<std::pair<uint32_t, uint8_t>> bytes) {
    return spoil([](const NicRig& rig) { return rig.read(0, 0, 8); }, std::move(bytes));
  };
  expect_all_refused({
      {"colour", "ionic", spoil_write({{11, 0x08}}), kOperation, "the colour is 0 instead of 1"},
      {"index", "ionic", spoil_write({{0, 5}}), kOperation, "index is 0x5 instead of 0x1"},
      {"flag", "ionic", spoil_write({{10, 0x10}}), kOperation, "header are not zero"},
      {"immediate", "ionic", spoil_write({{15, 1}}), kOperation, "an immediate"},
      {"send", "ionic", spoil_write({{8, 0x20}}), kOperation, "opcode 0x20"},
      {"first generation", "ionic", spoil_write({{8, 0x07}}), kOperation, "opcode 0x7"},
      {"no place", "ionic", spoil_write({{9, 0}}), kOperation, "0 places in memory"},
      {"two places", "ionic", spoil_write({{9, 2}}), kOperation, "more than one place"},
      {"three places", "ionic", spoil_write({{9, 3}}), kOperation, "3 places in memory"},
      {"lengths", "ionic", spoil_write({{43, 8}}), kOperation, "the place in memory 8"},
      {"over 1 GiB", "ionic", spoil_write({{28, 0x40}}), NicFault::kLength, "1073741840 bytes"},
      {"inline read", "ionic", spoil_read({{11, 0x1c}}), kOperation, "inline bytes beside"},
      {"inline place", "ionic", spoil_inline({{9, 1}}), kOperation, "inline bytes beside"},
      {"long inline", "ionic", spoil_inline({{31, 33}}), NicFault::kLength, "33 inline bytes"},
      {"add place", "ionic", spoil_add({{9, 0}}), kOperation, "0 places in memory"},
      {"inline add", "ionic", spoil_add({{11, 0x1c}}), kOperation, "1 places in memory"},
  });
}

// Goal    a doorbell that announces nothing sensible is named, and ends its queue.
// Method  one wrong field of doorbell or record at a time.
TEST(NicErrors, Doorbells) {
  const auto ring_with_record = [](uint32_t record) {
    return [=](NicRig& rig) {
      rig.post(rig.nothing());
      rig.ring();
      rig.set_doorbell_record(record);
    };
  };
  const auto ring_backwards = [](NicRig& rig) {
    const uint64_t before = rig.doorbell_value();
    rig.post(rig.nothing());
    rig.ring();
    rig.step_until_idle();
    rig.post(rig.nothing());
    rig.set_doorbell(before);
  };
  const auto high = [](uint32_t bits) { return uint64_t{bits} << 32; };
  expect_all_refused({
      {"queue pair", "mlx5", spoil_doorbell(high(1 << 16)), kOperation,
       "queue pair is 0x12b instead of 0x12a", false},
      {"record behind", "mlx5", ring_with_record(1), kOperation,
       "announces index 0x2, the doorbell record only 0x1", false},
      {"record above 16 bits", "mlx5", ring_with_record(0x10002), kOperation, "above 16 bits",
       false},
      {"record far ahead", "mlx5", ring_with_record(30), kOperation,
       "29 blocks are announced in a queue of 16", false},
      {"queue pair", "bnxt", spoil_doorbell(high(1)), kOperation, "0x12b instead of 0x12a", false},
      {"not valid", "bnxt", spoil_doorbell(high(1 << 26)), kOperation, "not the valid doorbell",
       false},
      {"completion queue's", "bnxt", spoil_doorbell(high(4u << 28)), kOperation,
       "not the valid doorbell", false},
      {"toggle", "bnxt", spoil_doorbell(1 << 25), kOperation, "not the valid doorbell", false},
      {"index", "bnxt", spoil_doorbell(64), kOperation, "in a ring of 64 slots", false},
      {"epoch", "bnxt", spoil_doorbell(1 << 24), kOperation, "in a ring of 64", false},
      {"backwards", "bnxt", ring_backwards, kOperation, "in a ring of 64", false},
      {"queue", "ionic", spoil_doorbell(1 << 24), kOperation, "0x12b instead of 0x12a", false},
      {"armed", "ionic", spoil_doorbell(1 << 16), kOperation, "not the doorbell", false},
      {"index", "ionic", spoil_doorbell(32), kOperation, "in a ring of 16", false},
      {"backwards", "ionic", ring_backwards, kOperation, "the colour", false},
  });
}

// Goal    no operation leaves the windows that its keys name, on either side, and the error says
//         which side.
// Method  unknown keys, ranges past the end, sums that overflow, a peer without that window, an
//         atomic off its alignment; in all formats.
TEST(NicErrors, KeysAndRanges) {
  const auto with = [](std::function<void(NicOperation&)> change, bool is_atomic = false) {
    return [=](NicRig& rig) {
      NicOperation operation = is_atomic ? rig.add(0, 1) : rig.write(0, 0, 16);
      change(operation);
      rig.post(operation);
    };
  };
  constexpr NicFault kLocal = NicFault::kLocalProtection;
  constexpr NicFault kRemote = NicFault::kRemoteAccess;
  for (const char* const format : kFormats) {
    expect_all_refused({
        {"local key", format, with([](auto& o) { o.local_key = 99; }), kLocal,
         "local range of 16 bytes from offset 0: its key 0x63 names no window"},
        {"local end", format, with([](auto& o) { o.local_offset = NicRig::kWindowBytes - 15; }),
         kLocal, "that the range leaves"},
        {"local sum", format, with([](auto& o) { o.local_offset = ~uint64_t{0} - 7; }), kLocal,
         "that the range leaves"},
        {"remote key", format, with([](auto& o) { o.remote_key = 0; }), kRemote,
         "its key 0 names no window"},
        {"remote end", format, with([](auto& o) { o.remote_offset = NicRig::kWindowBytes - 8; }),
         kRemote, "remote range of 16 bytes from offset 65528"},
        {"remote sum", format, with([](auto& o) { o.remote_offset = ~uint64_t{0}; }), kRemote,
         "that the range leaves"},
        {"not here", format, with([](auto& o) { o.remote_key = window_key(NicRig::kOwnOnly); }),
         kRemote, "that the rank does not have here"},
        {"add's key", format, with([](auto& o) { o.remote_key = 1; }, true), kRemote, "key 0x1"},
        {"add's sink", format, with([](auto& o) { o.local_offset = 4089; }, true), kLocal,
         "local range of 8 bytes"},
        {"misaligned", format, with([](auto& o) { o.remote_offset = 4; }, true),
         NicFault::kRemoteInvalid, "an atomic on offset 4, not aligned"},
    });
  }
}

// Goal    a range that just fits is performed.
// Method  the last bytes of both windows.
TEST(NicErrors, TheLastBytesAreInside) {
  for (const char* const format : kFormats) {
    NicRig rig({.format = format});
    rig.run(rig.write(NicRig::kWindowBytes - 16, NicRig::kWindowBytes - 16, 16));
    rig.run(rig.add(4088, 1, 4088));
    EXPECT_TRUE(rig.nic().status().ok()) << rig.nic().status();
  }
}

// Goal    an atomic never meets a misaligned address, though its offset is aligned.
// Method  a window that begins off the alignment.
TEST(NicErrors, AtomicsOnAWindowThatIsMisaligned) {
  for (const char* const format : kFormats) {
    NicRig rig({.format = format});
    const auto base = [&rig](uint32_t rank) { return reinterpret_cast<uint64_t>(rig.data(rank)); };
    ASSERT_TRUE(rig.windows().add({9, 64, {base(0) + 4, base(1) + 4}}).ok());
    NicOperation operation = rig.add(8, 1);
    operation.remote_key = window_key(9);
    rig.run(operation);
    EXPECT_EQ(rig.look().syndrome, rig.format().syndrome(NicFault::kRemoteInvalid));
  }
}

// Goal    a window that is gone is refused by its key, also to a queue that used it before.
// Method  write, remove the window, write again.
TEST(NicErrors, KeyOfAWindowThatIsGone) {
  for (const char* const format : kFormats) {
    NicRig rig({.format = format});
    rig.run(rig.write(0, 0, 8));
    EXPECT_EQ(rig.look().syndrome, 0u);
    rig.windows().remove(NicRig::kWindow);
    rig.run(rig.write(0, 0, 8));
    EXPECT_EQ(rig.look().syndrome, rig.format().syndrome(NicFault::kLocalProtection));
  }
}

// Goal    memory that the driver does not reach fails the operation, not the NIC.
// Method  a port that refuses; another queue works once it does again.
TEST(NicErrors, MemoryThatCannotBeReached) {
  for (const char* const format : kFormats) {
    NicRig rig({.format = format, .queue_count = 2});
    rig.port().failure = absl::InternalError("the copy engine is gone");
    rig.run(rig.write(0, 0, 8));
    EXPECT_EQ(rig.look().syndrome, rig.format().syndrome(NicFault::kRemoteOperation));
    EXPECT_TRUE(absl::StrContains(rig.nic().status().message(), "the copy engine is gone"));
    rig.port().failure = absl::OkStatus();
    rig.run(rig.add(0, 1), 1);
    EXPECT_EQ(rig.look(1).syndrome, 0u);
    EXPECT_EQ(rig.signal(1, 0), 1u);
  }
}

// Goal    a failed operation that asked for no completion is reported all the same.
// Method  an unsignaled write of an unknown key.
TEST(NicErrors, UnsignaledErrorsAreReported) {
  for (const char* const format : kFormats) {
    NicRig rig({.format = format});
    NicOperation operation = rig.write(0, 0, 8);
    operation.signaled = false;
    operation.remote_key = 99;
    rig.run(operation);
    EXPECT_EQ(rig.look().syndrome, rig.format().syndrome(NicFault::kRemoteAccess));
  }
}

}  // namespace
}  // namespace cco
