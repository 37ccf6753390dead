#include "client/src/rpc_channel.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>

#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"

namespace cco {
namespace {

constexpr int kMaxAnswerBytes = 64 << 20;  // A list of many groups that form is the largest.

}  // namespace

absl::StatusOr<std::shared_ptr<RpcChannel>> RpcChannel::connect(const std::string& socket_path,
                                                                const Deadline& deadline) {
  CCO_ASSIGN_OR_RETURN(UniqueFd socket, connect_unix(socket_path, SOCK_STREAM, deadline.left()));
  CCO_RETURN_IF_ERROR(arm_fork_guard());
  std::shared_ptr<RpcChannel> channel(new RpcChannel);
  channel->fork_registration_.emplace(socket);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  channel->stub_ = v1::MemdService::NewStub(
      grpc::CreateCustomInsecureChannelFromFd("cco-memd", socket.release(), arguments));
  return channel;
}

}  // namespace cco
