// A daemon in this process for groups of one rank: real sockets, real fds, host memory, and a place
// to break each answer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cco/memd/v1/memd.grpc.pb.h"
#include "client/base/fd_frame.h"
#include "client/base/unique.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

namespace v1 = ::cco::memd::v1;

class FakeDaemon final : private v1::MemdService::Service {
 public:
  FakeDaemon();
  ~FakeDaemon() override;

  const std::string& socket_path() const { return socket_path_; }

  // What a test may replace before clients come. Unset: answer as a sound daemon would.

  /// What is sent upon a frame.
  std::function<std::vector<FdFrame>(FdFrame& request)> answer_frames;
  /// Garbage is all that comes on the RPC socket.
  bool garble_rpc = false;
  /// Called before the named call is carried out ("GetNode", "JoinGroup", …). A status that is not
  /// OK is the answer.
  std::function<grpc::Status(const std::string& call)> before_call;
  /// Changes a sound answer.
  std::function<void(v1::JoinGroupResponse*)> change_join;
  std::function<void(v1::CreateWindowResponse*)> change_window;
  std::function<void(v1::ExportSlabsResponse*)> change_export;
  std::function<void(v1::GetNodeResponse*)> change_node;
  /// Called when a window has been made, before that is answered.
  std::function<void()> window_made;

  /// Blocks a handler until this daemon ends: a daemon that has been stopped, as its clients see
  /// it.
  void block_until_end();
  /// Ends all connections, as the kernel does when a daemon dies.
  void cut_connections();
  void cut_rpc();
  void cut_frames();

  // Restarts. Sessions outlive this daemon if `resumable` is set before clients come.

  std::atomic<bool> resumable = false;
  std::atomic<uint64_t> incarnation = 77;
  /// Hellos with a token are refused: this daemon knows no earlier sessions.
  std::atomic<bool> forgets_sessions = false;
  /// Is gone: nobody listens, all connections end, tickets and offers are void.
  void die();
  /// Listens again after die(). A client that comes before waits in the queue.
  void come_back();
  /// Listens, but takes no connection before come_back(): as when systemd holds the sockets.
  void hold_sockets();
  /// Whether a client waits at the fd channel's socket that hold_sockets() made.
  bool wait_for_visitor(std::chrono::milliseconds timeout);
  int hello_count() const { return hello_count_; }
  int resume_count() const { return resume_count_; }
  int end_count() const { return end_count_; }  // Of sessions that ended in order.

  FdFrame sound_answer(FdFrame& request);
  /// The messages of one call, in order.
  template <typename Request>
  std::vector<Request> requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Request> result;
    for (const auto& [type, bytes] : log_) {
      if (type != Request().GetTypeName()) continue;
      result.emplace_back().ParseFromString(bytes);
    }
    return result;
  }
  size_t fd_connection_count();
  /// CCO_CONDITION_*, on the rank's notice page.
  void set_conditions(uint32_t conditions);
  /// Whether all clients' fd channels end within `timeout`.
  bool wait_for_disconnect(std::chrono::milliseconds timeout);
  /// Drops tickets, offers and all slabs but the first ones, and what was sent last, so that a test
  /// can count descriptors.
  void forget(size_t kept_slabs);

 private:
  FdFrame welcome(const std::string& token);
  grpc::Status make_window(const v1::CreateWindowRequest& request,
                           v1::CreateWindowResponse* response);
  void serve_rpc();
  void serve_frames();
  void serve_frame_connection(UniqueFd connection);
  bool answer_frame(const UniqueFd& connection);
  std::string issue_ticket(UniqueFd fd);
  grpc::Status enter(const char* call, const google::protobuf::Message& request);

  grpc::Status GetNode(grpc::ServerContext*, const v1::GetNodeRequest*,
                       v1::GetNodeResponse*) override;
  grpc::Status JoinGroup(grpc::ServerContext*, const v1::JoinGroupRequest*,
                         v1::JoinGroupResponse*) override;
  grpc::Status LeaveGroup(grpc::ServerContext*, const v1::LeaveGroupRequest*,
                          v1::LeaveGroupResponse*) override;
  grpc::Status AbortGroup(grpc::ServerContext*, const v1::AbortGroupRequest*,
                          v1::AbortGroupResponse*) override;
  grpc::Status Barrier(grpc::ServerContext*, const v1::BarrierRequest*,
                       v1::BarrierResponse*) override;
  grpc::Status CreateWindow(grpc::ServerContext*, const v1::CreateWindowRequest*,
                            v1::CreateWindowResponse*) override;
  grpc::Status DestroyWindow(grpc::ServerContext*, const v1::DestroyWindowRequest*,
                             v1::DestroyWindowResponse*) override;
  grpc::Status ExportSlabs(grpc::ServerContext*, const v1::ExportSlabsRequest*,
                           v1::ExportSlabsResponse*) override;
  grpc::Status ReportPeers(grpc::ServerContext*, const v1::ReportPeersRequest*,
                           v1::ReportPeersResponse*) override;

  struct Slab {
    GpuMemory memory;  // Empty for external memory, which is a descriptor alone.
    UniqueFd external;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
  };

  std::string directory_;
  std::string socket_path_;
  UniqueFd rpc_listener_;
  UniqueFd frame_listener_;
  UniqueFd notice_;
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;  // frame_connections_ or frames_held_.
  std::vector<std::pair<std::string, std::string>> log_;
  std::vector<UniqueFd> rpc_connections_;  // Duplicates, to be cut.
  std::vector<int> frame_connections_;
  int frames_held_ = 0;  // Being answered: with descriptors that a client may have by now.
  std::map<std::string, UniqueFd> tickets_;
  std::map<std::string, UniqueFd> offers_;
  std::vector<Slab> slabs_;
  uint64_t next_offset_ = 0;
  uint64_t next_control_ = 0;
  uint64_t next_window_ = 1;
  std::map<std::string, v1::CreateWindowResponse> windows_made_;  // By request id.
  std::mutex end_mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::atomic<int> hello_count_ = 0;
  std::atomic<int> resume_count_ = 0;
  std::atomic<int> end_count_ = 0;
  std::mutex serving_mutex_;  // die() and come_back() are called from any thread.
  std::vector<std::thread> threads_;
  std::vector<std::thread> frame_threads_;  // Added to by one of threads_.
};

}  // namespace cco
