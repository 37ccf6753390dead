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
  ~Client();

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
    return heard(connection_->call(method, request, response, connection_->timeout()));
  }

  /// Tells the daemon that something is no longer used. Its answer changes nothing here; a daemon
  /// that has just not answered is not asked again, so that ending many things ends in time.
  template <typename Request, typename Response>
  void call_farewell(Connection::Method<Request, Response> method, Request request) {
    if (silent_.load(std::memory_order_relaxed)) return;
    Response response;
    request.set_request_id(new_request_id());
    const auto attempt = [&](v1::MemdService::Stub& stub, grpc::ClientContext* context,
                             std::chrono::milliseconds) {
      return (stub.*method)(context, request, &response);
    };
    heard(connection_->carry_out(attempt, connection_->timeout(), kFarewell)).IgnoreError();
  }

  /// A call that waits for other ranks.
  template <typename Request, typename Response>
  absl::Status call_collective(Connection::Method<Request, Response> method, Request request,
                               Response* response, std::chrono::milliseconds timeout) {
    const std::string call = call_of(request);
    request.set_request_id(request_ids_.begin(call));
    const auto attempt = [&](v1::MemdService::Stub& stub, grpc::ClientContext* context,
                             std::chrono::milliseconds left) {
      request.set_timeout_ms(static_cast<uint32_t>(left.count()));
      return (stub.*method)(context, request, response);
    };
    absl::Status outcome = heard(connection_->carry_out(attempt, timeout, timeout));
    request_ids_.end(call, request.request_id(), outcome);
    return outcome;
  }

 private:
  /// How long farewells wait for a daemon that is away. It learns of the process's end in any case.
  static constexpr std::chrono::milliseconds kFarewell{1000};

  Client() = default;

  /// An offer is a new one for every attempt at the same call.
  template <typename Request>
  static std::string call_of(Request request) {
    if constexpr (requires { request.clear_offer(); }) request.clear_offer();
    return request.GetTypeName() + request.SerializeAsString();
  }

  absl::Status heard(absl::Status outcome) {
    silent_.store(!answered_by_daemon(outcome), std::memory_order_relaxed);
    return outcome;
  }

  std::unique_ptr<Connection> connection_;
  v1::GetNodeResponse node_;
  std::unique_ptr<GpuDriver> driver_;
  RequestIds request_ids_;
  std::atomic<bool> silent_{false};  // The daemon owes the last call its answer.
};

}  // namespace cco::client
