// One session, and the GPU driver that the daemon uses.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/src/connection.h"
#include "client/src/request_ids.h"
#include "device/runtime/gpu_driver.h"

namespace cco::client {

/// Thread safe.
class Client {
 public:
  static absl::StatusOr<std::shared_ptr<Client>> create(const std::string& socket_path,
                                                        std::chrono::milliseconds timeout);

  Connection& connection() { return *connection_; }
  GpuDriver& driver() { return *driver_; }
  const v1::GetNodeResponse& node() const { return node_; }

  /// INVALID_ARGUMENT over an hour. 0 becomes the default.
  static absl::StatusOr<std::chrono::milliseconds> collective_timeout(uint32_t timeout_ms);

  /// A call that waits for nobody else: within the client's own time-out.
  template <typename Request, typename Response>
  absl::Status call(Connection::Method<Request, Response> method, Request request,
                    Response* response) {
    request.set_request_id(new_request_id());
    absl::Status outcome = connection_->call(method, request, response, connection_->timeout());
    silent_.store(!answered_by_daemon(outcome), std::memory_order_relaxed);
    return outcome;
  }

  /// Tells the daemon that something is no longer used. Its answer changes nothing here; a daemon
  /// that has just not answered is not asked again, so that ending many things ends in time.
  template <typename Request, typename Response>
  void call_farewell(Connection::Method<Request, Response> method, Request request) {
    Response response;
    if (!silent_.load(std::memory_order_relaxed)) {
      call(method, std::move(request), &response).IgnoreError();
    }
  }

  /// A call that waits for other ranks.
  template <typename Request, typename Response>
  absl::Status call_collective(Connection::Method<Request, Response> method, Request request,
                               Response* response, std::chrono::milliseconds timeout) {
    const std::string call = request.GetTypeName() + request.SerializeAsString();
    request.set_request_id(request_ids_.begin(call));
    request.set_timeout_ms(static_cast<uint32_t>(timeout.count()));
    absl::Status outcome = connection_->call(method, request, response, timeout);
    request_ids_.end(call, request.request_id(), outcome);
    return outcome;
  }

 private:
  Client() = default;

  std::unique_ptr<Connection> connection_;
  v1::GetNodeResponse node_;
  std::unique_ptr<GpuDriver> driver_;
  RequestIds request_ids_;
  std::atomic<bool> silent_{false};  // The daemon owes the last local call its answer.
};

}  // namespace cco::client
