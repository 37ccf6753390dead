// The configuration: tenants, which contradictions are refused, and shares.
#include "daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cco::memd {
namespace {

using ::testing::HasSubstr;

// Goal    tenants come back from the printed configuration as they went in.
TEST(TenantsConfig, RoundTrip) {
  const absl::StatusOr<Config> first = parse_config(
      "tenants { name: 'training' uid: [1000, 1001] gid: 50 cgroup: '/jobs.slice' priority: 3\n"
      "  quotas { bytes_per_gpu: 2097152 groups: 4 windows: 100 sessions: 8 } }\n"
      "tenants { name: 'serving' uid: 2000 external_memory: false }\n"
      "default_tenant { priority: 1 quotas { groups: 2 } }",
      "test");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string printed = print_config(*first);
  const absl::StatusOr<Config> second = parse_config(printed, "printed");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(print_config(*second), printed);
  const Tenants& tenants = second->tenants;
  ASSERT_EQ(tenants.named().size(), 2u);
  const Tenant& training = tenants.named()[0];
  EXPECT_EQ(training.name, "training");
  EXPECT_EQ(training.uids, (std::vector<uint32_t>{1000, 1001}));
  EXPECT_EQ(training.gids, std::vector<uint32_t>{50});
  EXPECT_EQ(training.cgroup, "/jobs.slice");
  EXPECT_EQ(training.priority, 3u);
  EXPECT_TRUE(training.external_memory);
  EXPECT_EQ(training.quotas.bytes_per_gpu, 2097152u);
  EXPECT_EQ(training.quotas.groups, 4u);
  EXPECT_EQ(training.quotas.windows, 100u);
  EXPECT_EQ(training.quotas.sessions, 8u);
  EXPECT_FALSE(tenants.named()[1].external_memory);
  EXPECT_EQ(tenants.named()[1].quotas.groups, 0u) << "none";
  EXPECT_EQ(tenants.others().priority, 1u);
  EXPECT_EQ(tenants.others().quotas.groups, 2u);
}

// Goal    when memory is said to be short is a share, which 0 turns off.
TEST(Config, MemoryPressureIsAShare) {
  EXPECT_EQ(parse_config("", "test")->memory_pressure_percent, 90u);
  for (const uint32_t percent : {0u, 100u}) {
    const auto config = parse_config(absl::StrCat("memory_pressure_percent: ", percent), "test");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->memory_pressure_percent, percent);
    EXPECT_EQ(parse_config(print_config(*config), "test")->memory_pressure_percent, percent);
  }
  EXPECT_NE(std::string(parse_config("memory_pressure_percent: 101", "test").status().message())
                .find("memory_pressure_percent is 101; it takes 0 to 100"),
            std::string::npos);
}

// Goal    one tenant's share is below the node's limit, unless the configuration says otherwise.
TEST(Config, OneTenantHasAShare) {
  struct Case {
    std::string limits;
    uint32_t sessions;
    uint64_t groups;
  };
  for (const Case& one :
       {Case{"", 512, 512}, Case{"sessions: 99 groups: 1", 50, 1},
        Case{"sessions: 99 sessions_per_tenant: 98", 98, 512},
        Case{"tenant_share_percent: 100", 1024, 1024}, Case{"tenant_share_percent: 1", 11, 11}}) {
    const auto config = parse_config(absl::StrCat("limits { ", one.limits, " }"), "test");
    ASSERT_TRUE(config.ok()) << config.status();
    for (const auto& read : {config, parse_config(print_config(*config), "printed")}) {
      EXPECT_EQ(read->limits.sessions_per_tenant, one.sessions) << one.limits;
      EXPECT_EQ(read->limits.share(read->limits.groups), one.groups) << one.limits;
    }
  }
  for (const char* bad : {"0", "101"}) {
    const auto status =
        parse_config(absl::StrCat("limits { tenant_share_percent: ", bad, " }"), "test").status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("limits.tenant_share_percent is ", bad, "; it takes 1 to")));
  }
  EXPECT_EQ(Limits().sessions_per_tenant, parse_config("", "test")->limits.sessions_per_tenant);
}

// Goal    without tenants every user is one, without quotas.
TEST(TenantsConfig, NoneIsADefault) {
  const absl::StatusOr<Config> config = parse_config("", "test");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->tenants.named().empty());
  EXPECT_TRUE(config->tenants.others().external_memory);
  EXPECT_EQ(config->tenants.others().quotas.bytes_per_gpu, 0u);
}

// Goal    each contradiction is refused, and the message says between what.
TEST(TenantsConfig, ContradictionsAreRefused) {
  struct Case {
    std::string text;
    std::string says;
  };
  const std::string limits =
      "limits { sessions: 10 groups: 5 windows_per_group: 7 bytes_per_gpu: 8388608 } ";
  const auto quotas = [&](const std::string& of) {
    return limits + "tenants { name: 'a' uid: 1 quotas { " + of + " } }";
  };
  const std::vector<Case> cases = {
      {"tenants { uid: 1 }", "name is ''"},
      {"tenants { name: 'a b' uid: 1 }", "'a b'"},
      {"tenants { name: 'uid-7' uid: 1 }", "begin with uid-"},
      {"tenants { name: '" + std::string(64, 'x') + "' uid: 1 }", "1 to 63"},
      {"tenants { name: 'a' }", "'a' takes nobody"},
      {"tenants { name: 'a' uid: 1 } tenants { name: 'a' uid: 2 }", "name a is given twice"},
      {"tenants { name: 'a' uid: 1 } tenants { name: 'b' uid: 1 }",
       "uid 1 is given twice, to tenants 'a' and 'b'"},
      {"tenants { name: 'a' uid: [1, 1] }", "uid 1 is given twice"},
      {"tenants { name: 'a' gid: 1 } tenants { name: 'b' gid: 1 }", "gid 1 is given twice"},
      {"tenants { name: 'a' cgroup: '/x' } tenants { name: 'b' cgroup: '/x/y' }", "put 'b' first"},
      {"tenants { name: 'a' cgroup: '/' }", "cgroup is '/'"},
      {"tenants { name: 'a' cgroup: 'x' }", "cgroup is 'x'"},
      {"tenants { name: 'a' cgroup: '/x/' }", "cgroup is '/x/'"},
      {quotas("groups: 0"), "tenant 'a': quotas.groups is 0"},
      {quotas("bytes_per_gpu: 0"), "quotas.bytes_per_gpu is 0"},
      {quotas("windows: 0"), "quotas.windows is 0"},
      {quotas("sessions: 0"), "quotas.sessions is 0"},
      {quotas("groups: 6"), "quotas.groups is 6, above the node's limits.groups, 5"},
      {quotas("sessions: 11"), "limits.sessions, 10"},
      {quotas("windows: 36"), "limits.windows_per_group, 35"},
      {quotas("bytes_per_gpu: 8388609"), "limits.bytes_per_gpu, 8388608"},
      {quotas("bytes_per_gpu: 4096"), "control_bytes is 1048576"},
      {"default_tenant { uid: 1 }", "default_tenant has a name, uid"},
      {"default_tenant { quotas { groups: 0 } }", "default_tenant: quotas.groups is 0"},
  };
  for (const Case& bad : cases) {
    const absl::Status status = parse_config(bad.text, "test").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.says)) << bad.text;
  }
  EXPECT_TRUE(parse_config(quotas("windows: 35 groups: 5 sessions: 10"), "test").ok());
  EXPECT_TRUE(parse_config(
                  "tenants { name: 'b' cgroup: '/x/y' } tenants { name: 'a' cgroup: '/x' }", "test")
                  .ok());
}

}  // namespace
}  // namespace cco::memd
