// The C interface against a daemon in this process. Goal and method stand at each test.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <utility>

#include "cco/client.hpp"
#include "tests/unit/client/fake_daemon.h"

namespace cco {
namespace {

constexpr uint64_t kControlBytes = 1 << 20;

// What these calls open and could leak is memory. gRPC, on both ends in this process, opens and
// closes descriptors of its own whenever it likes.
int count_memfds() {
  int count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(directory)) {
    char target[64] = {};
    const ssize_t size = ::readlinkat(::dirfd(directory), entry->d_name, target, sizeof target - 1);
    if (size > 0 && std::string(target).rfind("/memfd:", 0) == 0) ++count;
  }
  ::closedir(directory);
  return count;
}

class CApi : public ::testing::Test {
 protected:
  void attach(uint32_t timeout_ms = 0) {
    ASSERT_EQ(Client::create({daemon_.socket_path().c_str(), timeout_ms}, &client_), CCO_OK)
        << cco_error_message();
  }
  cco_status join() {
    Group::Options options;
    options.rank = 0;
    options.size = 1;
    options.device = 0;
    options.name = "g";
    options.timeout_ms = 5000;
    return Group::create(client_, options, &group_);
  }
  void attach_and_join() {
    attach();
    ASSERT_EQ(join(), CCO_OK) << cco_error_message();
  }
  static void expect_message(const std::string& part) {
    EXPECT_NE(std::string(cco_error_message()).find(part), std::string::npos)
        << "'" << cco_error_message() << "' lacks '" << part << "'";
  }

  FakeDaemon daemon_;
  Client client_;
  Group group_;
};

// Goal    the whole way works: attach, join, window, bytes, communicator, leave.
// Method  one rank; look at the memory through both kinds of address.
TEST_F(CApi, OneRankFromAttachToLeave) {
  attach_and_join();
  cco_client_info client_info{};
  ASSERT_EQ(client_.get_info(&client_info), CCO_OK);
  EXPECT_STREQ(client_info.driver, "host");
  EXPECT_STREQ(client_info.daemon_version, "1.2.3");
  EXPECT_EQ(client_info.gpu_count, 2u);
  EXPECT_EQ(client_info.incarnation, 77u);
  cco_gpu_info gpu{};
  ASSERT_EQ(client_.get_gpu(1, &gpu), CCO_OK);
  EXPECT_STREQ(gpu.uuid, "HOST-1");
  EXPECT_EQ(gpu.total_bytes, uint64_t{64} << 20);
  EXPECT_EQ(client_.get_gpu(2, &gpu), CCO_NOT_FOUND);

  Window window;
  ASSERT_EQ(Window::create(group_, "w", {1000}, &window), CCO_OK) << cco_error_message();
  cco_window_device device{};
  ASSERT_EQ(window.get_device(&device), CCO_OK);
  EXPECT_EQ(device.abi_version, CCO_ABI_VERSION);
  EXPECT_EQ(device.size_bytes, 1000u);
  EXPECT_EQ(device.stride_4g, 1u);
  EXPECT_EQ(device.transports,
            CCO_TRANSPORT_LSA | CCO_TRANSPORT_SDMA | CCO_TRANSPORT_TDM | CCO_TRANSPORT_GDA);
  EXPECT_EQ(device.incarnation, 77u);
  char* bytes = nullptr;
  ASSERT_EQ(window.get_address(0, 0, &bytes), CCO_OK);
  EXPECT_EQ(reinterpret_cast<uint64_t>(bytes), device.win_base);
  EXPECT_EQ(reinterpret_cast<const uint64_t*>(device.peer_bases)[0], device.win_base);
  std::memset(bytes, 'x', 1000);
  EXPECT_EQ(window.get_address(0, 1000, &bytes), CCO_OUT_OF_RANGE);
  EXPECT_EQ(window.get_address(1, 0, &bytes), CCO_OUT_OF_RANGE);
  const cco_window_device* pointer = nullptr;
  ASSERT_EQ(window.get_device_pointer(&pointer), CCO_OK);
  EXPECT_EQ(std::memcmp(pointer, &device, sizeof device), 0);

  Comm comm;
  ASSERT_EQ(Comm::create(group_, {3, 2}, &comm), CCO_OK) << cco_error_message();
  cco_device_comm words{};
  ASSERT_EQ(comm.get_device(&words), CCO_OK);
  EXPECT_EQ(words.signal_count, 3u);
  EXPECT_EQ(words.barrier_count, 2u);
  EXPECT_EQ(words.barrier_offset, 256u);
  EXPECT_GT(words.clock_khz, 0u);
  EXPECT_EQ(words.slot_bytes, uint64_t{4} << 30);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(words.abort_word), CCO_ABORT_NONE);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(words.control.win_base), 0u);

  cco_group_info info{};
  ASSERT_EQ(group_.get_info(&info), CCO_OK);
  EXPECT_EQ(info.slab_count, 2u);
  EXPECT_EQ(info.flat_base % (uint64_t{4} << 30), 0u);
  EXPECT_EQ(group_.barrier(1000), CCO_OK);
  EXPECT_EQ(group_.check(), CCO_OK);
  uint32_t conditions = ~uint32_t{0};
  EXPECT_EQ(group_.get_conditions(&conditions), CCO_OK);
  EXPECT_EQ(conditions, 0u);
  daemon_.set_conditions(CCO_CONDITION_DRAINING);
  EXPECT_EQ(group_.get_conditions(&conditions), CCO_OK);
  EXPECT_EQ(conditions, CCO_CONDITION_DRAINING);
  EXPECT_EQ(group_.get_conditions(nullptr), CCO_INVALID_ARGUMENT);
  EXPECT_EQ(group_.abort(), CCO_OK);
  EXPECT_EQ(group_.check(), CCO_ABORTED);
  EXPECT_EQ(cco_error_rank(), 0);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(words.abort_word), CCO_ABORT_WORD(CCO_ABORT_REQUESTED, 0));
}

// Goal    sequences count what ended well; an attempt without an answer repeats its request id, one
//         with does not.
// Method  fail a barrier and an unnamed window once each way, and read what the daemon was sent.
TEST_F(CApi, SequencesAdvanceOnSuccessOnly) {
  attach_and_join();
  const size_t before = daemon_.requests<v1::BarrierRequest>().size();
  const auto fail_once = [&](const std::string& which, grpc::StatusCode code) {
    daemon_.before_call = [which, code, done = false](const std::string& call) mutable {
      if (call != which || std::exchange(done, true)) return grpc::Status::OK;
      return grpc::Status(code, "made to fail");
    };
  };
  fail_once("Barrier", grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(group_.barrier(), CCO_RESOURCE_EXHAUSTED);
  fail_once("Barrier", grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(group_.barrier(), CCO_UNAVAILABLE);
  EXPECT_EQ(group_.barrier(), CCO_OK);
  EXPECT_EQ(group_.barrier(), CCO_OK);
  const auto barriers = daemon_.requests<v1::BarrierRequest>();
  ASSERT_EQ(barriers.size(), before + 4);
  EXPECT_EQ(barriers[before].sequence(), before);
  EXPECT_EQ(barriers[before + 1].sequence(), before);
  EXPECT_EQ(barriers[before + 2].sequence(), before);
  EXPECT_EQ(barriers[before + 3].sequence(), before + 1);
  EXPECT_NE(barriers[before].request_id(), barriers[before + 1].request_id());
  EXPECT_EQ(barriers[before + 1].request_id(), barriers[before + 2].request_id());

  Window window;
  fail_once("CreateWindow", grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_RESOURCE_EXHAUSTED);
  EXPECT_EQ(Window::create(group_, "", {64}, &window), CCO_OK);
  EXPECT_EQ(Window::create(group_, "named", {64}, &window), CCO_OK);
  EXPECT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_OK);
  const auto windows = daemon_.requests<v1::CreateWindowRequest>();
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_EQ(windows[0].sequence(), 0u);
  EXPECT_EQ(windows[1].sequence(), 0u);
  EXPECT_EQ(windows[3].sequence(), 1u);
}

// Goal    handles end in any order, twice, through their parents, and the daemon is told what it
//         needs to know.
TEST_F(CApi, DestroyInAnyOrder) {
  attach_and_join();
  const cco_window_options options{sizeof options, 0, 64, 0, 0, 0, 0};
  cco_window* first = nullptr;
  cco_window* second = nullptr;
  ASSERT_EQ(cco_window_create(group_.get(), "a", &options, &first), CCO_OK);
  ASSERT_EQ(cco_window_create(group_.get(), "b", &options, &second), CCO_OK);
  cco_window_destroy(first);
  cco_window_destroy(first);
  cco_window_destroy(nullptr);
  cco_window_destroy(reinterpret_cast<cco_window*>(group_.get()));
  cco_window_destroy(reinterpret_cast<cco_window*>(&first));
  EXPECT_EQ(group_.check(), CCO_OK) << "a group is not destroyed as a window";
  EXPECT_EQ(daemon_.requests<v1::DestroyWindowRequest>().size(), 1u);
  cco_client_destroy(client_.get());
  EXPECT_EQ(daemon_.requests<v1::DestroyWindowRequest>().size(), 1u)
      << "the group's end is the window's";
  EXPECT_EQ(daemon_.requests<v1::LeaveGroupRequest>().size(), 1u);
  EXPECT_EQ(group_.check(), CCO_INVALID_ARGUMENT);
  expect_message("cco_group_check: the handle should be a group but has been destroyed");
  cco_window_device device{};
  EXPECT_EQ(cco_window_get_device(second, &device), CCO_INVALID_ARGUMENT);
  cco_window_destroy(second);
  cco_group_destroy(group_.get());
  cco_client_destroy(client_.get());
  EXPECT_EQ(daemon_.requests<v1::LeaveGroupRequest>().size(), 1u);
}

// Goal    structs of older and newer callers are read to the size they say, and no further.
TEST_F(CApi, StructSizes) {
  attach();
  cco_client_options options{0, 0, nullptr};
  cco_client* client = nullptr;
  EXPECT_EQ(cco_client_create(&options, &client), CCO_INVALID_ARGUMENT);
  expect_message("options->struct_size is 0");
  struct Newer {
    cco_client_options known;
    uint64_t later;
  } newer{{sizeof(Newer), 0, daemon_.socket_path().c_str()}, 1};
  EXPECT_EQ(cco_client_create(&newer.known, &client), CCO_INVALID_ARGUMENT);
  expect_message("does not know");
  newer.later = 0;
  ASSERT_EQ(cco_client_create(&newer.known, &client), CCO_OK) << cco_error_message();
  cco_client_destroy(client);

  cco_client_info info;
  std::memset(&info, 0xee, sizeof info);
  info.struct_size = offsetof(cco_client_info, incarnation);
  ASSERT_EQ(cco_client_get_info(client_.get(), &info), CCO_OK);
  EXPECT_EQ(info.struct_size, offsetof(cco_client_info, incarnation));
  EXPECT_EQ(info.gpu_count, 2u);
  EXPECT_EQ(info.incarnation, 0xeeeeeeeeeeeeeeeeu) << "written beyond the caller's struct";
  EXPECT_EQ(cco_client_get_info(client_.get(), nullptr), CCO_INVALID_ARGUMENT);
  EXPECT_EQ(cco_window_create(group_.get(), "x", nullptr, nullptr), CCO_INVALID_ARGUMENT);
}

// Goal    a join that fails at any step leaves no fd behind, leaves the group, and says what was
//         wrong.
// Method  spoil each part of the daemon's answers in turn.
TEST_F(CApi, FailedJoinLeavesNothing) {
  attach();
  struct Case {
    std::string text;
    std::function<void(FakeDaemon&)> spoil;
  };
  const std::vector<Case> cases = {
      {"client and daemon do not match",
       [](FakeDaemon& d) { d.change_join = [](auto* j) { j->set_lsa_size(2); }; }},
      {"client and daemon do not match",
       [](FakeDaemon& d) { d.change_join = [](auto* j) { j->set_lsa_rank(1); }; }},
      {"client and daemon do not match",
       [](FakeDaemon& d) { d.change_join = [](auto* j) { j->set_control_bytes(64); }; }},
      {"no such ticket",
       [](FakeDaemon& d) { d.change_export = [](auto* e) { e->set_notice_ticket("bad"); }; }},
      {"multiples of 4 GiB",
       [](FakeDaemon& d) { d.change_join = [](auto* j) { j->set_slot_bytes(5 << 20); }; }},
      {"mapping slab 0 of rank 0",
       [](FakeDaemon& d) {
         d.change_export = [](auto* e) { e->mutable_exports(0)->set_ticket("bad"); };
       }},
      {"granularity",
       [](FakeDaemon& d) {
         d.change_export = [](auto* e) { e->mutable_exports(0)->set_offset(1); };
       }},
      {"cco-memd places",
       [](FakeDaemon& d) {
         d.change_export = [](auto* e) { e->mutable_exports(0)->set_size_bytes(~uint64_t{0}); };
       }},
      {"mapping slab 0",
       [](FakeDaemon& d) {
         d.change_export = [](auto* e) { e->mutable_exports(0)->set_size_bytes(2 << 20); };
       }},
      {"0 ranks instead of 1",
       [](FakeDaemon& d) { d.change_export = [](auto* e) { e->clear_exports(); }; }},
      {"it does not",
       [](FakeDaemon& d) {
         d.change_export = [](auto* e) { e->mutable_exports(0)->set_offset(1 << 20); };
       }},
      {"broken barrier",
       [](FakeDaemon& d) {
         d.before_call = [](const std::string& call) {
           return call == "Barrier" ? grpc::Status(grpc::StatusCode::ABORTED, "broken barrier")
                                    : grpc::Status::OK;
         };
       }},
  };
  const int memfds_before = count_memfds();
  size_t left = 0;
  for (const Case& wrong : cases) {
    daemon_.change_join = nullptr;
    daemon_.change_export = nullptr;
    wrong.spoil(daemon_);
    EXPECT_NE(join(), CCO_OK);
    expect_message(wrong.text);
    EXPECT_FALSE(group_);
    EXPECT_EQ(daemon_.requests<v1::LeaveGroupRequest>().size(), ++left);
    daemon_.forget(0);
    EXPECT_EQ(count_memfds(), memfds_before) << wrong.text;
  }
  daemon_.before_call = nullptr;
  daemon_.change_export = nullptr;
  EXPECT_EQ(join(), CCO_OK) << cco_error_message();
}

// Goal    a window that cannot be built here is given up, and the next unnamed one takes the next
//         number.
TEST_F(CApi, FailedWindowIsGivenUp) {
  attach_and_join();
  daemon_.change_window = [](v1::CreateWindowResponse* response) {
    response->set_descriptor_offset(kControlBytes - 64);
  };
  Window window;
  EXPECT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_INTERNAL);
  expect_message("places a descriptor");
  daemon_.change_window = [](v1::CreateWindowResponse* response) {
    response->set_offset(response->offset() + 4096);
  };
  EXPECT_EQ(Window::create(group_, nullptr, {65536}, &window), CCO_INTERNAL);
  expect_message("it does not");
  daemon_.change_window = [](v1::CreateWindowResponse* response) {
    for (int i = 0; i < 2; ++i) response->add_peer_offsets(0);
  };
  EXPECT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_INTERNAL);
  daemon_.change_window = nullptr;
  ASSERT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_OK) << cco_error_message();
  EXPECT_EQ(daemon_.requests<v1::DestroyWindowRequest>().size(), 3u);
  EXPECT_EQ(daemon_.requests<v1::CreateWindowRequest>().back().sequence(), 3u);
}

// Goal    options that no daemon is needed to judge are refused with their values.
TEST_F(CApi, BadOptions) {
  attach_and_join();
  Window window;
  EXPECT_EQ(Window::create(group_, "w", {0}, &window), CCO_INVALID_ARGUMENT);
  expect_message("size_bytes is 0");
  EXPECT_EQ(Window::create(group_, std::string(128, 'w').c_str(), {64}, &window),
            CCO_INVALID_ARGUMENT);
  expect_message("128 bytes");
  EXPECT_EQ(Window::create(group_, "w", {64, 0, 3600001}, &window), CCO_INVALID_ARGUMENT);
  EXPECT_EQ(Window::create(Group(), "w", {64}, &window), CCO_INVALID_ARGUMENT);
  expect_message("should be a group but is null");
  Comm comm;
  EXPECT_EQ(Comm::create(group_, {65537, 0}, &comm), CCO_INVALID_ARGUMENT);
  expect_message("signal_count is 65537");
  EXPECT_EQ(group_.barrier(3600001), CCO_INVALID_ARGUMENT);
  EXPECT_EQ(daemon_.requests<v1::CreateWindowRequest>().size(), 0u);
}

// Goal    memory of the caller's own becomes a window, at an offset, without a copy; what is no
//         such memory is refused.
// Method  a sealed memfd with bytes in it; then wrong ranges and descriptors; then look for leaked
//         fds.
TEST_F(CApi, ExternalMemory) {
  attach_and_join();
  const uint64_t size = 128 << 10;
  const UniqueFd fd(::memfd_create("external", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), size), 0);
  ASSERT_EQ(::pwrite(fd.get(), "hello", 5, 4096), 5);
  daemon_.forget(1);  // What it has sent is no longer its own.
  const int memfds_before = count_memfds();
  {
    Window window;
    ASSERT_EQ(Window::register_memory(group_, "x", {5}, {fd.get(), size, 4096}, &window), CCO_OK)
        << cco_error_message();
    char* bytes = nullptr;
    ASSERT_EQ(window.get_address(0, 0, &bytes), CCO_OK);
    EXPECT_EQ(std::string(bytes, 5), "hello");
    cco_group_info info{};
    ASSERT_EQ(group_.get_info(&info), CCO_OK);
    EXPECT_EQ(info.slab_count, 2u);
  }
  cco_group_info info{};
  ASSERT_EQ(group_.get_info(&info), CCO_OK);
  EXPECT_EQ(info.slab_count, 1u) << "unmapped with its window";
  EXPECT_EQ(daemon_.requests<v1::DestroyWindowRequest>().size(), 1u);
  daemon_.forget(1);
  EXPECT_EQ(count_memfds(), memfds_before);

  Window window;
  EXPECT_EQ(Window::register_memory(group_, "x", {5}, {-1, size, 0}, &window),
            CCO_INVALID_ARGUMENT);
  expect_message("fd -1");
  for (const auto& [window_bytes, offset] : std::initializer_list<std::pair<uint64_t, uint64_t>>{
           {5, 8}, {size + 1, 0}, {16, size}, {~uint64_t{0}, 16}, {1, ~uint64_t{15}}}) {
    EXPECT_EQ(
        Window::register_memory(group_, "x", {window_bytes}, {fd.get(), size, offset}, &window),
        CCO_INVALID_ARGUMENT);
    expect_message("must lie inside");
  }
}

// Goal    external memory whose offsets do not agree is reached by table alone.
TEST_F(CApi, ExternalMemoryOffStride) {
  attach_and_join();
  const UniqueFd fd(::memfd_create("external", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 65536), 0);
  daemon_.change_window = [](v1::CreateWindowResponse* response) {
    response->set_offset(response->offset() + 16);
  };
  Window window;
  ASSERT_EQ(Window::register_memory(group_, "x", {64}, {fd.get(), 65536, 32}, &window), CCO_OK)
      << cco_error_message();
  cco_window_device device{};
  ASSERT_EQ(window.get_device(&device), CCO_OK);
  EXPECT_EQ(device.stride_4g, 0u);
  EXPECT_EQ(device.win_base, 0u);
  void* address = nullptr;
  ASSERT_EQ(window.get_address(0, 0, &address), CCO_OK);
  EXPECT_EQ(reinterpret_cast<uint64_t*>(device.peer_bases)[0], reinterpret_cast<uint64_t>(address));
}

// Goal    a second call that is matched by order is refused while one waits; named windows are not
//         held up.
// Method  block a barrier in the daemon, and make both from another thread.
TEST_F(CApi, OneOrderedCallAtATime) {
  attach_and_join();
  std::mutex mutex;
  std::condition_variable changed;
  bool waiting = false;
  bool release = false;
  daemon_.before_call = [&](const std::string& call) {
    if (call != "Barrier") return grpc::Status::OK;
    std::unique_lock<std::mutex> lock(mutex);
    waiting = true;
    changed.notify_all();
    changed.wait(lock, [&] { return release; });
    return grpc::Status::OK;
  };
  std::thread barrier([&] { EXPECT_EQ(group_.barrier(), CCO_OK) << cco_error_message(); });
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return waiting; });
  }
  EXPECT_EQ(group_.barrier(), CCO_FAILED_PRECONDITION);
  expect_message("another thread is in a call");
  Window window;
  EXPECT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_FAILED_PRECONDITION);
  EXPECT_EQ(Window::create(group_, "named", {64}, &window), CCO_OK) << cco_error_message();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    release = true;
  }
  changed.notify_all();
  barrier.join();
}

// Goal    ending many things beside a daemon that does not answer takes one time-out, not one for
//         each.
TEST_F(CApi, DestroyIsBoundedWhenTheDaemonIsSilent) {
  attach(50);
  ASSERT_EQ(join(), CCO_OK) << cco_error_message();
  std::vector<Window> windows(8);
  for (Window& window : windows) ASSERT_EQ(Window::create(group_, nullptr, {64}, &window), CCO_OK);
  daemon_.before_call = [&](const std::string&) {
    daemon_.block_until_end();
    return grpc::Status::OK;
  };
  const auto start = std::chrono::steady_clock::now();
  windows.clear();
  group_ = Group();
  client_ = Client();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(3000));
}

// Goal    a thread's last failure is its own.
TEST_F(CApi, ErrorsBelongToTheirThread) {
  EXPECT_EQ(cco_group_check(nullptr), CCO_INVALID_ARGUMENT);
  const std::string mine = cco_error_message();
  std::thread([] {
    EXPECT_STREQ(cco_error_message(), "");
    EXPECT_EQ(cco_error_rank(), -1);
    cco_unique_id id;
    EXPECT_EQ(cco_unique_id_create(&id), CCO_OK);
    EXPECT_EQ(cco_client_get_info(nullptr, nullptr), CCO_INVALID_ARGUMENT);
  }).join();
  EXPECT_EQ(cco_error_message(), mine);
  EXPECT_STREQ(cco_status_name(CCO_ABORTED), "CCO_ABORTED");
  EXPECT_STREQ(cco_status_name(static_cast<cco_status>(99)), "CCO_UNKNOWN");
  EXPECT_STREQ(cco_status_name(static_cast<cco_status>(-1)), "CCO_UNKNOWN");
  EXPECT_THROW(or_throw(cco_group_check(nullptr)), Error);
}

}  // namespace
}  // namespace cco
