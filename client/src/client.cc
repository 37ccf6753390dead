#include "client/src/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "client/src/deadline.h"
#include "device/runtime/open_driver.h"

namespace cco::client {
namespace {

constexpr uint32_t kDefaultCollectiveMs = 60'000;
constexpr uint32_t kMaxTimeoutMs = 3'600'000;

absl::StatusOr<std::unique_ptr<GpuDriver>> open_same_driver(const v1::GetNodeResponse& node) {
  CCO_ASSIGN_OR_RETURN(const DriverKind kind, parse_driver_kind(node.driver()));
  if (kind == DriverKind::kAuto) return absl::InvalidArgumentError("that names no driver");
  DriverOptions options;
  options.kind = kind;
  if (kind == DriverKind::kHost && node.gpus_size() > 0) {
    options.host_devices = static_cast<uint32_t>(node.gpus_size());
    options.host_bytes_per_device = node.gpus(0).total_bytes();
  }
  return open_driver(options);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Client>> Client::create(const std::string& socket_path,
                                                       std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  std::shared_ptr<Client> client(new Client);
  CCO_ASSIGN_OR_RETURN(client->connection_, Connection::open(socket_path, timeout));
  CCO_RETURN_IF_ERROR(client->connection_->call(
      &v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &client->node_, deadline.left()));
  absl::StatusOr<std::unique_ptr<GpuDriver>> driver = open_same_driver(client->node_);
  if (!driver.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cco-memd at ", socket_path, " uses the GPU driver '", client->node_.driver(),
        "', which this process cannot open: ", std::string(driver.status().message())));
  }
  client->driver_ = *std::move(driver);
  return client;
}

Client::~Client() {
  if (connection_ != nullptr && !silent_.load(std::memory_order_relaxed)) {
    connection_->end(kFarewell);
  }
}

absl::StatusOr<std::chrono::milliseconds> Client::collective_timeout(uint32_t timeout_ms) {
  if (timeout_ms > kMaxTimeoutMs) {
    return absl::InvalidArgumentError(absl::StrCat("timeout_ms is ", timeout_ms, "; it takes 0 to ",
                                                   kMaxTimeoutMs, " (one hour)"));
  }
  return std::chrono::milliseconds(timeout_ms == 0 ? kDefaultCollectiveMs : timeout_ms);
}

}  // namespace cco::client
