// Broker: LSA teams smaller than the node, and what ranks report of their transports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text(const absl::Status& status) { return std::string(status.message()); }

JoinRequest request(uint32_t rank, uint32_t size, uint32_t lsa_size) {
  JoinRequest request;
  request.name = "g";
  request.rank = rank;
  request.size = size;
  request.gpu_uuid = "HOST-0";
  request.lsa_size = lsa_size;
  return request;
}

std::vector<Fixture::Answer<JoinResult>> join_all(Fixture& f, uint32_t size,
                                                  const std::vector<uint32_t>& lsa_sizes) {
  std::vector<Fixture::Answer<JoinResult>> answers;
  for (uint32_t rank = 0; rank < size; ++rank) {
    answers.push_back(f.join(f.attach(), request(rank, size, lsa_sizes[rank])));
  }
  return answers;
}

// Goal    a group's LSA teams are as large as all ranks ask for; unasked, as the group.
TEST(BrokerTransports, LsaSizeAsAskedFor) {
  for (const auto& [asked, given] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 4}, {1, 1}, {2, 2}, {4, 4}}) {
    Fixture f;
    for (const auto& answer : join_all(f, 4, std::vector<uint32_t>(4, asked))) {
      ASSERT_TRUE(answer->ok()) << answer->status();
      EXPECT_EQ((*answer)->lsa_size, given) << "asked for " << asked;
    }
  }
}

// Goal    a size that does not divide the group is refused at once.
TEST(BrokerTransports, LsaSizeDividesTheGroup) {
  Fixture f;
  for (const uint32_t lsa_size : {3u, 5u, 8u, ~0u}) {
    const auto answer = f.join(f.attach(), request(0, 4, lsa_size));
    EXPECT_EQ(answer->status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(text(answer->status()),
                AllOf(HasSubstr(absl::StrCat("lsa_size is ", lsa_size)), HasSubstr("4")));
  }
  EXPECT_TRUE(f.broker.forming().empty());
}

// Goal    ranks that disagree on it all learn who differs; "all" and the group's size are not the
//         same word.
TEST(BrokerTransports, LsaSizeDisagreement) {
  for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{2, 2, 1, 2}, {0, 0, 4, 0}}) {
    Fixture f;
    for (const auto& answer : join_all(f, 4, sizes)) {
      EXPECT_EQ(answer->status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(text(answer->status()), AllOf(HasSubstr("rank 2"), HasSubstr("lsa_size")));
      EXPECT_EQ(rank_of(answer->status()), 2u);
    }
    EXPECT_TRUE(f.broker.groups().empty());
  }
}

TransportReport report(uint32_t peer, const std::string& transport, const std::string& provider) {
  return {.peer = peer,
          .transport = transport,
          .usable = !provider.empty(),
          .provider = provider,
          .detail = provider + " to " + std::to_string(peer)};
}

// Goal    what a rank reports is kept, by peer and transport, and the latest word counts.
TEST(BrokerTransports, LatestReportCounts) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto told = [&](std::vector<TransportReport> reports) {
    return f.broker.report_transports(f.session(members[1]), group, 1, std::move(reports));
  };
  EXPECT_TRUE(told({report(0, "sdma", ""), report(0, "gda", "proxy")}).ok());
  EXPECT_TRUE(told({report(0, "sdma", "host"), report(1, "sdma", "host")}).ok());
  const auto& kept = f.broker.groups().at(group)->ranks[1].transports;
  std::vector<std::string> details;
  for (uint32_t key = 0; key < kept.end(); ++key) {
    const Reports::Finding* found = kept.find(key);
    details.push_back(found == nullptr ? "" : found->detail);
    EXPECT_TRUE(found == nullptr || found->is_good);
  }
  EXPECT_THAT(details,  // Of each peer: gda, lsa, sdma, tdm.
              ElementsAre("proxy to 0", "", "host to 0", "", "", "", "host to 1"));
  EXPECT_EQ(f.broker.groups().at(group)->ranks[0].transports.end(), 0u);
}

// Goal    a report on what is not there changes nothing, its sound parts included.
TEST(BrokerTransports, BadReportsChangeNothing) {
  Fixture f;
  std::vector<SessionId> members;
  const GroupId group = f.form(2, &members);
  const auto refuse = [&](SessionId who, GroupId which, uint32_t rank, TransportReport bad,
                          absl::StatusCode code, const std::string& says) {
    const absl::Status status =
        f.broker.report_transports(f.session(who), which, rank, {report(0, "sdma", "host"), bad});
    EXPECT_EQ(status.code(), code) << says;
    EXPECT_THAT(text(status), HasSubstr(says));
  };
  refuse(members[0], group, 0, report(2, "sdma", "host"), absl::StatusCode::kInvalidArgument,
         "peer 2");
  refuse(members[0], group, 0, report(1, "pigeon", "host"), absl::StatusCode::kInvalidArgument,
         "'pigeon'");
  refuse(members[0], group, 1, report(1, "sdma", "host"), absl::StatusCode::kNotFound, "rank");
  refuse(f.attach(), group, 0, report(1, "sdma", "host"), absl::StatusCode::kNotFound, "");
  refuse(members[0], GroupId{999}, 0, report(1, "sdma", "host"), absl::StatusCode::kNotFound, "");
  for (const Rank& rank : f.broker.groups().at(group)->ranks) {
    EXPECT_EQ(rank.transports.end(), 0u);
  }
}

std::string detail_of(const Reports& reports, uint32_t key) {
  const Reports::Finding* finding = reports.find(key);
  return finding == nullptr ? "none" : finding->detail;
}

// Goal    what one rank reports takes little memory, whatever it says; what it says of many in the
//         same words is kept of all, and room that was given up is used again.
// Method  of 1024 peers the same; then of each something else, until there is no room, twice; then
//         the same of all again.
TEST(Reports, TakeBoundedMemory) {
  constexpr uint32_t kPeers = 1024;
  const std::string same(511, 's');
  Reports reports;
  for (uint32_t peer = 0; peer < kPeers; ++peer) reports.set(peer, {true, "host", same});
  EXPECT_EQ(reports.bytes(), Reports::kFindingBytes + 4 + 511);
  for (const char letter : {'a', 'b'}) {
    uint32_t kept_count = 0;
    for (uint32_t peer = 0; peer < kPeers; ++peer) {
      const std::string detail = absl::StrCat(std::string(500, letter), peer);
      reports.set(peer, {peer % 2 == 0, "", detail});
      ASSERT_EQ(reports.find(peer)->is_good, peer % 2 == 0);
      ASSERT_LE(reports.bytes(), Reports::kMaxBytes);
      if (reports.find(peer)->detail == detail) {
        ++kept_count;
      } else {
        ASSERT_THAT(detail_of(reports, peer), HasSubstr("at most 32768 bytes"));
      }
    }
    EXPECT_GT(kept_count, 50u);
  }
  for (uint32_t peer = 0; peer < kPeers; ++peer) reports.set(peer, {true, "host", same});
  EXPECT_EQ(detail_of(reports, 0), same);
  EXPECT_EQ(detail_of(reports, kPeers - 1), same);
  EXPECT_EQ(detail_of(reports, kPeers), "none");
  EXPECT_EQ(reports.bytes(), Reports::kFindingBytes + 4 + 511);
}

}  // namespace
}  // namespace cco::memd
