// The RPC channel of one session: gRPC over one socket that never reconnects by itself.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cco/memd/v1/memd.grpc.pb.h"
#include "client/src/deadline.h"
#include "client/src/fork_guard.h"

namespace cco {

namespace v1 = ::cco::memd::v1;

/// Thread safe.
class RpcChannel {
 public:
  static absl::StatusOr<std::shared_ptr<RpcChannel>> connect(const std::string& socket_path,
                                                             const Deadline& deadline);

  v1::MemdService::Stub& stub() { return *stub_; }

 private:
  RpcChannel() = default;
  std::unique_ptr<v1::MemdService::Stub> stub_;
  std::optional<ForkRegistration> fork_registration_;
};

}  // namespace cco
