#include "tests/unit/client/fake_daemon.h"

#include <fcntl.h>
#include <grpcpp/server_posix.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cco/device/abi.h"
#include "client/base/status_macros.h"
#include "device/runtime/open_driver.h"

namespace cco {
namespace {

constexpr uint64_t kControlBytes = 1 << 20;
constexpr uint64_t kSelfTestBytes = 16 << 10;
constexpr uint64_t kSlotBytes = uint64_t{4} << 30;
constexpr uint64_t kGroupId = 9;

UniqueFd listen_at(const std::string& path, int type) {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  CCO_ASSERT(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CCO_ASSERT(::listen(fd.get(), 64) == 0);
  return fd;
}

UniqueFd make_notice_page() {
  UniqueFd fd(::memfd_create("notice", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CCO_ASSERT(::ftruncate(fd.get(), 4096) == 0);
  cco_notice_page page{};
  page.abi_version = CCO_ABI_VERSION;
  page.world_size = 1;
  CCO_ASSERT(::pwrite(fd.get(), &page, sizeof page, 0) == sizeof page);
  CCO_ASSERT(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  return fd;
}

UniqueFd duplicate(const UniqueFd& fd) { return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); }

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

FakeDaemon::FakeDaemon() {
  char directory[] = "/tmp/cco-fake-XXXXXX";
  CCO_ASSERT(::mkdtemp(directory) != nullptr);
  directory_ = directory;
  socket_path_ = directory_ + "/memd.sock";
  notice_ = make_notice_page();
  DriverOptions options;
  options.kind = DriverKind::kHost;
  options.host_devices = 2;
  options.host_bytes_per_device = 64 << 20;
  driver_ = *open_driver(options);
  grpc::ServerBuilder builder;
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  come_back();
}

FakeDaemon::~FakeDaemon() {
  {
    const std::lock_guard<std::mutex> lock(end_mutex_);
    end_ = true;
  }
  ended_.notify_all();
  die();
  for (std::thread& thread : frame_threads_) thread.join();
  server_->Shutdown();
  ::rmdir(directory_.c_str());
}

void FakeDaemon::hold_sockets() {
  const std::lock_guard<std::mutex> lock(serving_mutex_);
  if (frame_listener_) return;
  rpc_listener_ = listen_at(socket_path_, SOCK_STREAM);
  frame_listener_ = listen_at(fd_socket_path(socket_path_), SOCK_SEQPACKET);
}

void FakeDaemon::die() {
  {
    const std::lock_guard<std::mutex> lock(serving_mutex_);
    ::unlink(socket_path_.c_str());
    ::unlink(fd_socket_path(socket_path_).c_str());
    ::shutdown(rpc_listener_.get(), SHUT_RDWR);
    ::shutdown(frame_listener_.get(), SHUT_RDWR);
    for (std::thread& thread : std::exchange(threads_, {})) thread.join();
    rpc_listener_.reset();
    frame_listener_.reset();
  }
  cut_connections();
  const std::lock_guard<std::mutex> lock(mutex_);
  tickets_.clear();
  offers_.clear();
}

void FakeDaemon::come_back() {
  hold_sockets();
  const std::lock_guard<std::mutex> lock(serving_mutex_);
  threads_.emplace_back([this] { serve_rpc(); });
  threads_.emplace_back([this] { serve_frames(); });
}

bool FakeDaemon::wait_for_visitor(std::chrono::milliseconds timeout) {
  return wait_readable(frame_listener_, timeout).ok();
}

void FakeDaemon::block_until_end() {
  std::unique_lock<std::mutex> lock(end_mutex_);
  ended_.wait(lock, [this] { return end_; });
}

void FakeDaemon::cut_connections() {
  cut_rpc();
  cut_frames();
}

void FakeDaemon::cut_rpc() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const UniqueFd& fd : rpc_connections_) ::shutdown(fd.get(), SHUT_RDWR);
}

void FakeDaemon::cut_frames() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const int fd : frame_connections_) ::shutdown(fd, SHUT_RDWR);
}

size_t FakeDaemon::fd_connection_count() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return frame_connections_.size();
}

bool FakeDaemon::wait_for_disconnect(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return frame_connections_.empty(); });
}

void FakeDaemon::forget(size_t kept_slabs) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return frames_held_ == 0; });
  slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(std::min(kept_slabs, slabs_.size())),
               slabs_.end());
  tickets_.clear();
  offers_.clear();
}

void FakeDaemon::serve_rpc() {
  for (;;) {
    UniqueFd connection(
        ::accept4(rpc_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    rpc_connections_.push_back(duplicate(connection));
    if (garble_rpc) {
      const std::string garbage(4096, 'g');
      CCO_ASSERT(::send(connection.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0);
      continue;
    }
    grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
  }
}

void FakeDaemon::serve_frames() {
  for (;;) {
    UniqueFd connection(::accept4(frame_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      frame_connections_.push_back(connection.get());
    }
    const int raw = connection.release();
    frame_threads_.emplace_back([this, raw] { serve_frame_connection(UniqueFd(raw)); });
  }
}

void FakeDaemon::serve_frame_connection(UniqueFd connection) {
  while (answer_frame(connection)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --frames_held_;
    changed_.notify_all();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  frame_connections_.erase(
      std::find(frame_connections_.begin(), frame_connections_.end(), connection.get()));
  changed_.notify_all();
}

// Its descriptors, and those of its answers, are closed at the end.
bool FakeDaemon::answer_frame(const UniqueFd& connection) {
  absl::StatusOr<FdFrame> request = receive_frame(connection);
  if (!request.ok()) return false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++frames_held_;
  }
  std::vector<FdFrame> answers;
  if (answer_frames) {
    answers = answer_frames(*request);
  } else {
    answers.push_back(sound_answer(*request));
  }
  for (const FdFrame& answer : answers) {
    (void)send_frame(connection, answer.type, answer.code, answer.payload,
                     answer.fd ? &answer.fd : nullptr);
  }
  return true;
}

FdFrame FakeDaemon::welcome(const std::string& token) {
  ++hello_count_;
  if (!token.empty()) ++resume_count_;
  if (!token.empty() && (forgets_sessions || token != std::string(kSecretBytes, 't'))) {
    return {FdFrameType::kWelcome, absl::StatusCode::kUnauthenticated, "no such session",
            UniqueFd()};
  }
  FdFrame answer;
  answer.type = FdFrameType::kWelcome;
  answer.payload.assign(kSecretBytes, 't');
  const uint64_t number = incarnation;
  answer.payload.append(reinterpret_cast<const char*>(&number), sizeof number);
  answer.payload.push_back(resumable ? 1 : 0);
  return answer;
}

FdFrame FakeDaemon::sound_answer(FdFrame& request) {
  FdFrame answer;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (request.type == FdFrameType::kHello) {
    answer = welcome(request.payload);
  } else if (request.type == FdFrameType::kEnd) {
    ++end_count_;
    answer.type = FdFrameType::kEnded;
  } else if (request.type == FdFrameType::kOffer) {
    answer.type = FdFrameType::kOffered;
    answer.payload = random_bytes(kSecretBytes);
    offers_[answer.payload] = std::move(request.fd);
  } else {
    answer.type = FdFrameType::kGrant;
    const auto ticket = tickets_.find(request.payload);
    if (ticket == tickets_.end()) {
      answer.code = absl::StatusCode::kNotFound;
      answer.payload = "no such ticket";
    } else {
      answer.fd = std::move(ticket->second);
      tickets_.erase(ticket);
    }
  }
  return answer;
}

std::string FakeDaemon::issue_ticket(UniqueFd fd) {
  std::string ticket = random_bytes(kSecretBytes);
  tickets_[ticket] = std::move(fd);
  return ticket;
}

grpc::Status FakeDaemon::enter(const char* call, const google::protobuf::Message& request) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    log_.emplace_back(request.GetTypeName(), request.SerializeAsString());
  }
  return before_call ? before_call(call) : grpc::Status::OK;
}

grpc::Status FakeDaemon::GetNode(grpc::ServerContext* context, const v1::GetNodeRequest* request,
                                 v1::GetNodeResponse* response) {
  if (grpc::Status status = enter("GetNode", *request); !status.ok()) return status;
  const auto token = context->client_metadata().find("cco-session-bin");
  if (token == context->client_metadata().end() ||
      token->second != std::string(kSecretBytes, 't')) {
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no session");
  }
  response->set_version("1.2.3");
  response->set_incarnation(incarnation);
  response->set_driver("host");
  for (const GpuDevice& device : driver_->devices()) {
    v1::Gpu* gpu = response->add_gpus();
    gpu->set_uuid(device.uuid);
    gpu->set_total_bytes(device.total_bytes);
  }
  if (change_node) change_node(response);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::JoinGroup(grpc::ServerContext*, const v1::JoinGroupRequest* request,
                                   v1::JoinGroupResponse* response) {
  if (grpc::Status status = enter("JoinGroup", *request); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(mutex_);
  slabs_.clear();
  slabs_.push_back(
      {*driver_->allocate(0, kControlBytes, MemoryKind::kControl), UniqueFd(), 0, kControlBytes});
  next_offset_ = kControlBytes;
  next_control_ = kSelfTestBytes;
  response->set_group_id(kGroupId);
  response->set_slot_bytes(kSlotBytes);
  response->add_members()->set_gpu_uuid(request->gpu_uuid());
  response->set_lsa_size(1);
  response->set_control_bytes(kControlBytes);
  response->set_generation(3);
  if (change_join) change_join(response);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::LeaveGroup(grpc::ServerContext*, const v1::LeaveGroupRequest* request,
                                    v1::LeaveGroupResponse*) {
  return enter("LeaveGroup", *request);
}

grpc::Status FakeDaemon::AbortGroup(grpc::ServerContext*, const v1::AbortGroupRequest* request,
                                    v1::AbortGroupResponse*) {
  if (grpc::Status status = enter("AbortGroup", *request); !status.ok()) return status;
  const uint64_t word = CCO_ABORT_WORD(CCO_ABORT_REQUESTED, request->rank());
  CCO_ASSERT(::pwrite(notice_.get(), &word, sizeof word, offsetof(cco_notice_page, abort_word)) ==
             sizeof word);
  return grpc::Status::OK;
}

void FakeDaemon::set_conditions(uint32_t conditions) {
  CCO_ASSERT(::pwrite(notice_.get(), &conditions, sizeof conditions,
                      offsetof(cco_notice_page, conditions)) == sizeof conditions);
}

grpc::Status FakeDaemon::Barrier(grpc::ServerContext*, const v1::BarrierRequest* request,
                                 v1::BarrierResponse*) {
  return enter("Barrier", *request);
}

grpc::Status FakeDaemon::CreateWindow(grpc::ServerContext*, const v1::CreateWindowRequest* request,
                                      v1::CreateWindowResponse* response) {
  if (grpc::Status status = enter("CreateWindow", *request); !status.ok()) return status;
  if (grpc::Status status = make_window(*request, response); !status.ok()) return status;
  if (window_made) window_made();
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::make_window(const v1::CreateWindowRequest& request,
                                     v1::CreateWindowResponse* response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [first, is_new] = windows_made_.try_emplace(request.request_id());
  if (!is_new) {
    *response = first->second;
    return grpc::Status::OK;
  }
  if (request.placement() == v1::PLACEMENT_EXTERNAL && offers_.count(request.offer()) == 0) {
    windows_made_.erase(first);
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such offer");
  }
  const uint64_t granularity = driver_->devices()[0].granularity_bytes;
  response->set_window_id(next_window_);
  response->set_generation(100 + next_window_++);
  if (request.placement() == v1::PLACEMENT_CONTROL) {
    response->set_offset(next_control_);
    next_control_ += round_up(request.size_bytes(), 256);
  } else {
    Slab slab;
    slab.offset = next_offset_;
    slab.size_bytes = round_up(request.size_bytes(), granularity);
    if (request.placement() == v1::PLACEMENT_EXTERNAL) {
      slab.external = std::move(offers_[request.offer()]);
      slab.size_bytes = request.allocation_bytes();
      response->add_peer_offsets(slab.offset + request.allocation_offset());
    } else {
      slab.memory = *driver_->allocate(0, slab.size_bytes, MemoryKind::kData);
    }
    response->set_offset(slab.offset + request.allocation_offset());
    response->set_slab_index(static_cast<uint32_t>(slabs_.size()));
    next_offset_ += slab.size_bytes;
    slabs_.push_back(std::move(slab));
  }
  response->set_descriptor_offset(next_control_);
  next_control_ += 256;
  if (change_window) change_window(response);
  first->second = *response;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::DestroyWindow(grpc::ServerContext*,
                                       const v1::DestroyWindowRequest* request,
                                       v1::DestroyWindowResponse*) {
  return enter("DestroyWindow", *request);
}

grpc::Status FakeDaemon::ExportSlabs(grpc::ServerContext*, const v1::ExportSlabsRequest* request,
                                     v1::ExportSlabsResponse* response) {
  if (grpc::Status status = enter("ExportSlabs", *request); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Slab& slab = slabs_.at(request->slab_index());
  v1::SlabExport* item = response->add_exports();
  item->set_ticket(
      issue_ticket(slab.external ? duplicate(slab.external) : *driver_->export_fd(slab.memory)));
  item->set_size_bytes(slab.size_bytes);
  item->set_offset(slab.offset);
  if (request->slab_index() == 0) {
    response->set_notice_ticket(issue_ticket(duplicate(notice_)));
  }
  if (change_export) change_export(response);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ReportPeers(grpc::ServerContext*, const v1::ReportPeersRequest* request,
                                     v1::ReportPeersResponse*) {
  return enter("ReportPeers", *request);
}

}  // namespace cco
