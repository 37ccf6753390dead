// ccoctl lease: keeps memory for a job whose processes are still to come.
#include <CLI/CLI.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/report.pb.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

// What a script can evaluate, and Slurm's TaskProlog can print.
absl::StatusOr<int> create(const Settings& settings, v1::CreateLeaseRequest request) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  request.set_request_id(new_request_id());
  v1::CreateLeaseResponse made;
  CCO_RETURN_IF_ERROR(
      connection->call(&v1::MemdService::Stub::CreateLease, request, &made, settings.timeout()));
  report::v1::CreatedLease lease;
  lease.set_lease_id(made.lease_id());
  lease.set_token(absl::BytesToHexString(made.token()));
  if (settings.json) return print_json(lease);
  print(absl::StrCat("export CCO_LEASE=", lease.token(), "\nexport CCO_LEASE_ID=", lease.lease_id(),
                     "\n"));
  return kExitOk;
}

absl::StatusOr<int> list(const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  const auto listed = list_all<v1::ListLeasesRequest, v1::ListLeasesResponse>(
      *connection, &v1::MemdService::Stub::ListLeases, {}, settings);
  CCO_RETURN_IF_ERROR(listed.status());
  if (settings.json) return print_json(*listed);
  Table table({{"ID", Align::kRight},
               {"TENANT"},
               {"CGROUP"},
               {"GPU"},
               {"USED", Align::kRight},
               {"OF", Align::kRight},
               {"GROUPS", Align::kRight},
               {"ENDS IN", Align::kRight}});
  for (const v1::LeaseInfo& lease : listed->leases()) {
    for (const v1::LeaseUse& use : lease.uses()) {
      table.add({absl::StrCat(lease.lease_id()), lease.tenant().empty() ? "any" : lease.tenant(),
                 lease.cgroup().empty() ? "-" : lease.cgroup(), use.gpu_uuid(),
                 human_bytes(use.used_bytes()), human_bytes(lease.bytes_per_gpu()),
                 absl::StrCat(lease.group_count()), human_duration(lease.expires_in_ms())});
    }
  }
  print(table.text());
  return kExitOk;
}

absl::StatusOr<int> end(const Settings& settings, uint64_t id) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  v1::EndLeaseRequest request;
  request.set_request_id(new_request_id());
  request.set_lease_id(id);
  v1::EndLeaseResponse response;
  CCO_RETURN_IF_ERROR(
      connection->call(&v1::MemdService::Stub::EndLease, request, &response, settings.timeout()));
  if (settings.json) return print_json(response);
  print(absl::StrCat("lease ", id, " has ended\n"));
  return kExitOk;
}

// Filled by the parser, read by the runner.
struct LeaseArguments {
  std::vector<std::string> gpus;
  uint64_t bytes = 0;
  uint64_t ttl_ms = 0;
  std::string tenant;
  std::string cgroup;
  uint64_t id = 0;

  v1::CreateLeaseRequest request() const {
    v1::CreateLeaseRequest request;
    for (const std::string& gpu : gpus) request.add_gpu_uuids(gpu);
    request.set_bytes_per_gpu(bytes);
    request.set_ttl_ms(ttl_ms);
    request.set_tenant(tenant);
    request.set_cgroup(cgroup);
    return request;
  }
};

}  // namespace

Runner define_lease(CLI::App& app, const Settings& settings) {
  auto arguments = std::make_shared<LeaseArguments>();
  app.require_subcommand(1);
  const CLI::App* const listing = app.add_subcommand("list", "leases, and what of each is used");
  CLI::App* const ending = app.add_subcommand("end", "gives back what of a lease is not used");
  ending->add_option("id", arguments->id, "of the lease")->required();
  CLI::App* const making =
      app.add_subcommand("create", "makes a lease; prints its token, as a script can evaluate it");
  making->add_option("--bytes", arguments->bytes, "on each GPU, as 64GiB")
      ->required()
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  making->add_option("--ttl", arguments->ttl_ms, "until it ends by itself, as 90s, 15m, 12h, 30d")
      ->required()
      ->transform(CLI::AsNumberWithUnit(
          std::map<std::string, uint64_t>{
              {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}},
          CLI::AsNumberWithUnit::UNIT_REQUIRED));
  making->add_option("--gpu", arguments->gpus, "UUID; once for each GPU (default: all)");
  making->add_option("--tenant", arguments->tenant, "whom alone it serves (default: any)");
  making->add_option("--cgroup", arguments->cgroup,
                     "whose processes need no token, as /system.slice/job_7");
  return [arguments, &settings, listing, ending]() -> absl::StatusOr<int> {
    if (listing->parsed()) return list(settings);
    if (ending->parsed()) return end(settings, arguments->id);
    return create(settings, arguments->request());
  };
}

}  // namespace cco::ctl
