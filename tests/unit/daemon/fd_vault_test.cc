// The promises of ports/fd_vault.h, for each of its providers. The putting side is a process of its
// own, which can be killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/patience.h"
#include "tests/unit/daemon/vault_rig.h"

namespace cco::test {
namespace {

using ::testing::HasSubstr;
using Kept = std::map<std::string, UniqueFd>;
using StatusCode = absl::StatusCode;

class FdVault : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "keeper") {
      rig_ = std::make_unique<KeeperRig>();
    } else {
      rig_ = std::make_unique<SystemdRig>();
    }
  }

  Kept take_over(VaultActor& actor) {
    absl::StatusOr<Kept> kept = actor.take_over();
    EXPECT_TRUE(kept.ok()) << kept.status();
    return kept.ok() ? *std::move(kept) : Kept();
  }

  std::unique_ptr<VaultRig> rig_;
};

std::vector<std::string> names(const Kept& kept) {
  std::vector<std::string> names;
  for (const auto& [name, fd] : kept) names.push_back(name);
  return names;
}

// Goal    what was put is there after a kill, under its name, the same file with the same bytes.
TEST_P(FdVault, OutlivesThePuttingSide) {
  const UniqueFd slab = make_memfd("a slab"), notice = make_memfd("a notice page");
  auto actor = rig_->start();
  EXPECT_TRUE(take_over(*actor).empty());
  ASSERT_EQ(actor->put("slab-12", slab), absl::OkStatus());
  ASSERT_EQ(actor->put("notice-3-0", notice), absl::OkStatus());
  for (int restart = 0; restart < 3; ++restart) {
    actor->kill();
    actor = rig_->start();
    const Kept kept = take_over(*actor);
    ASSERT_THAT(names(kept), ::testing::ElementsAre("notice-3-0", "slab-12"));
    EXPECT_TRUE(is_same_file(kept.at("slab-12"), slab));
    EXPECT_TRUE(is_same_file(kept.at("notice-3-0"), notice));
    EXPECT_EQ(read_text(kept.at("slab-12")), "a slab");
  }
}

// Goal    nothing that was put is lost at whatever moment the putting side dies, and nothing else
//         appears.
// Method  it puts as fast as it can and tells after each; it is killed after 0, 1, ... of them.
TEST_P(FdVault, NothingIsLostByAKillAtAnyMoment) {
  for (int round = 0; round < 25; ++round) {
    const std::string prefix = absl::StrCat("slab-", round);
    auto actor = rig_->start();
    actor->begin_flood(prefix, 100'000);
    int told = 0;
    while (told < round && actor->next_of_flood().ok()) ++told;
    ASSERT_EQ(told, round);
    actor->kill();
    while (actor->next_of_flood().ok()) ++told;
    actor = rig_->start();
    const Kept kept = take_over(*actor);
    for (int i = 0; i < told; ++i) {
      EXPECT_EQ(kept.count(absl::StrCat(prefix, "-", i)), 1u) << i << " of " << told << " was lost";
    }
    EXPECT_LE(kept.size(), static_cast<size_t>(told) + 1) << "one at most was put and not told";
    for (const auto& [name, fd] : kept) {
      EXPECT_EQ(read_text(fd), name);
      ASSERT_EQ(actor->remove(name), absl::OkStatus());
    }
    actor->kill();
  }
}

// Goal    what the holder has not read when its sender dies is not lost either.
TEST_P(FdVault, WhatWasNotReadYetOutlivesThePuttingSide) {
  auto actor = rig_->start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("1")), absl::OkStatus());
  ASSERT_EQ(actor->remove("slab-1"), absl::OkStatus());
  rig_->stop();
  ASSERT_EQ(actor->put("slab-2", make_memfd("2")), absl::OkStatus());
  ASSERT_EQ(actor->put("slab-3", make_memfd("3")), absl::OkStatus());
  ASSERT_EQ(actor->remove("slab-2"), absl::OkStatus());
  actor->kill();
  rig_->resume();
  actor = rig_->start();
  EXPECT_THAT(names(take_over(*actor)), ::testing::ElementsAre("slab-3"));
}

TEST_P(FdVault, RefusesBadNames) {
  const auto actor = rig_->start();
  const UniqueFd fd = make_memfd("x");
  for (const std::string& name :
       {std::string(), std::string(65, 'a'), std::string("Slab"), std::string("slab 1"),
        std::string("slab/1"), std::string("slab:1"), std::string("slab_1"),
        std::string("slab\nFDSTORE=1"),
        std::string("sl\xc3\xa4"
                    "b")}) {
    const absl::Status status = actor->put(name, fd);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("1 to 64 characters"));
  }
  EXPECT_EQ(actor->put(std::string(64, 'a'), fd), absl::OkStatus());
}

// Goal    a name in use is refused, also if an earlier process put it, and its holder stays.
TEST_P(FdVault, RefusesANameInUse) {
  const UniqueFd first = make_memfd("first"), second = make_memfd("second");
  auto actor = rig_->start();
  ASSERT_EQ(actor->put("slab-1", first), absl::OkStatus());
  const absl::Status again = actor->put("slab-1", second);
  EXPECT_EQ(again.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.message()), HasSubstr("'slab-1'"));
  actor->kill();
  actor = rig_->start();
  EXPECT_TRUE(is_same_file(take_over(*actor).at("slab-1"), first));
  EXPECT_EQ(actor->put("slab-1", second).code(), StatusCode::kAlreadyExists);
}

// Goal    a removed name is gone, free again, and may be removed twice.
TEST_P(FdVault, RemovesOnceAndHarmlesslyAgain) {
  const UniqueFd first = make_memfd("first"), second = make_memfd("second");
  auto actor = rig_->start();
  EXPECT_EQ(actor->remove("slab-1"), absl::OkStatus()) << "nothing is held";
  ASSERT_EQ(actor->put("slab-1", first), absl::OkStatus());
  ASSERT_EQ(actor->put("slab-2", first), absl::OkStatus());
  ASSERT_EQ(actor->remove("slab-1"), absl::OkStatus());
  EXPECT_EQ(actor->remove("slab-1"), absl::OkStatus());
  actor->kill();
  actor = rig_->start();
  EXPECT_THAT(names(take_over(*actor)), ::testing::ElementsAre("slab-2"));
  ASSERT_EQ(actor->remove("slab-2"), absl::OkStatus()) << "what an earlier process put";
  ASSERT_EQ(actor->put("slab-1", second), absl::OkStatus());
  actor->kill();
  actor = rig_->start();
  const Kept kept = take_over(*actor);
  ASSERT_THAT(names(kept), ::testing::ElementsAre("slab-1"));
  EXPECT_TRUE(is_same_file(kept.at("slab-1"), second));
}

// Goal    one open file may be there under several names, as memory that is registered twice is,
//         also when some of them were put by an earlier process; each is removed alone.
TEST_P(FdVault, HoldsOneFileUnderSeveralNames) {
  const UniqueFd file = make_memfd("a file");
  auto actor = rig_->start();
  ASSERT_EQ(actor->put("slab-1", file), absl::OkStatus());
  ASSERT_EQ(actor->put("slab-2", file), absl::OkStatus());
  std::vector<std::string> expected{"slab-1", "slab-2"};
  for (int restart = 3; restart < 6; ++restart) {
    actor->kill();
    actor = rig_->start();
    const Kept kept = take_over(*actor);
    ASSERT_EQ(names(kept), expected);
    for (const auto& [name, fd] : kept) EXPECT_EQ(read_text(fd), "a file") << name;
    for (const auto& [name, fd] : kept) EXPECT_TRUE(is_same_file(fd, file)) << name;
    ASSERT_EQ(actor->put(absl::StrCat("slab-", restart), kept.at("slab-2")), absl::OkStatus());
    expected.push_back(absl::StrCat("slab-", restart));
  }
  ASSERT_EQ(actor->remove("slab-1"), absl::OkStatus());
  ASSERT_EQ(actor->remove("slab-3"), absl::OkStatus());
  actor->kill();
  actor = rig_->start();
  EXPECT_THAT(names(take_over(*actor)), ::testing::ElementsAre("slab-2", "slab-4", "slab-5"));
}

TEST_P(FdVault, HoldsAThousand) {
  constexpr int kCount = 1000;
  auto actor = rig_->start();
  actor->begin_flood("slab", kCount);
  absl::StatusOr<std::string> name = actor->next_of_flood();
  while (name.ok()) name = actor->next_of_flood();
  ASSERT_EQ(name.status().code(), StatusCode::kNotFound) << name.status();
  actor->kill();
  actor = rig_->start();
  const Kept kept = take_over(*actor);
  EXPECT_EQ(kept.size(), static_cast<size_t>(kCount));
  for (const auto& [kept_name, fd] : kept) ASSERT_EQ(read_text(fd), kept_name);
}

// Goal    the one that is too many is refused, not lost; a removal makes room, a restart does not.
TEST_P(FdVault, SaysThatItIsFull) {
  constexpr size_t kLimit = 40;
  rig_->set_limit(kLimit);
  auto actor = rig_->start();
  const UniqueFd fd = make_memfd("x");
  for (size_t i = 0; i < kLimit; ++i) {
    ASSERT_EQ(actor->put(absl::StrCat("slab-", i), make_memfd("x")), absl::OkStatus()) << i;
  }
  absl::Status full = actor->put("more", fd);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("limit is 40"));
  actor->kill();
  actor = rig_->start();
  EXPECT_EQ(take_over(*actor).size(), kLimit);
  full = actor->put("more", fd);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  ASSERT_EQ(actor->remove("slab-0"), absl::OkStatus());
  EXPECT_EQ(actor->put("more", fd), absl::OkStatus());
  actor->kill();
  actor = rig_->start();
  EXPECT_EQ(take_over(*actor).count("more"), 1u);
}

// Goal    a holder that is stopped is an error in time, not a hang, and is waited for once; what
//         was refused is not held, and when it goes on so does the vault.
TEST_P(FdVault, StoppedHolderIsAnError) {
  constexpr int kMany = 20'000;
  if (auto* keeper = dynamic_cast<KeeperRig*>(rig_.get()); keeper != nullptr) {
    keeper->options.send_timeout = std::chrono::milliseconds(100);
  }
  auto actor = rig_->start();
  ASSERT_EQ(actor->put("slab", make_memfd("slab")), absl::OkStatus());
  rig_->stop();
  actor->begin_flood("slab", kMany);
  size_t put = 1;
  absl::StatusOr<std::string> name = actor->next_of_flood();
  for (; name.ok(); name = actor->next_of_flood()) ++put;
  EXPECT_EQ(name.status().code(), StatusCode::kUnavailable) << name.status();
  const std::string refused = absl::StrCat("slab-", put - 1);
  const UniqueFd more = make_memfd("more");
  const Stopwatch refusals;
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(actor->put(refused, more).code(), StatusCode::kUnavailable);
  EXPECT_LT(refusals.elapsed(), patient(std::chrono::seconds(2))) << "each has waited";
  rig_->resume();
  const UniqueFd fd = make_memfd("again");
  absl::Status again = actor->put(refused, fd);
  const Stopwatch watch;  // It has much to read first.
  while (absl::IsUnavailable(again) && watch.elapsed() < patience()) {
    again = actor->put(refused, fd);
  }
  EXPECT_EQ(again, absl::OkStatus());
  actor->kill();
  actor = rig_->start();
  const Kept kept = take_over(*actor);
  EXPECT_EQ(kept.size(), put + 1);
  EXPECT_TRUE(is_same_file(kept.at(refused), fd));
}

INSTANTIATE_TEST_SUITE_P(Providers, FdVault, ::testing::Values("keeper", "systemd"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cco::test
