// Taking a GPU out of service: who is there is told, and afterwards nothing of it is held.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/integration/ccoctl.h"
#include "tests/integration/raw_session.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

using absl::StatusCode;

// What the kernel says that a process has open.
struct OpenFile {
  std::string path;
  uint64_t inode;
};
std::vector<OpenFile> open_files(pid_t pid) {
  std::vector<OpenFile> files;
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  DIR* dir = ::opendir(folder.c_str());
  EXPECT_NE(dir, nullptr) << folder;
  while (const dirent* entry = dir == nullptr ? nullptr : ::readdir(dir)) {
    const std::string link = folder + "/" + entry->d_name;
    char path[PATH_MAX] = "";
    struct stat facts {};
    if (::readlink(link.c_str(), path, sizeof path - 1) < 0) continue;
    if (::stat(link.c_str(), &facts) == 0) files.push_back({path, facts.st_ino});
  }
  if (dir != nullptr) ::closedir(dir);
  return files;
}
size_t count_inode(pid_t pid, uint64_t inode) {
  size_t count = 0;
  for (const OpenFile& file : open_files(pid)) count += file.inode == inode;
  return count;
}

class Operator {
 public:
  explicit Operator(const std::string& socket_path) : session_(socket_path) {}
  absl::Status drain(const std::string& gpu, uint32_t deadline_ms) {
    v1::DrainGpuRequest request;
    request.set_request_id(new_request_id());
    request.set_gpu_uuid(gpu);
    request.set_deadline_ms(deadline_ms);
    v1::DrainGpuResponse response;
    return session_.call(&Stub::DrainGpu, request, &response);
  }
  absl::Status undrain(const std::string& gpu) {
    v1::UndrainGpuRequest request;
    request.set_request_id(new_request_id());
    request.set_gpu_uuid(gpu);
    v1::UndrainGpuResponse response;
    return session_.call(&Stub::UndrainGpu, request, &response);
  }
  v1::Gpu gpu(const std::string& uuid) {
    v1::GetNodeResponse node;
    const absl::Status status = session_.call(&Stub::GetNode, v1::GetNodeRequest(), &node);
    EXPECT_TRUE(status.ok()) << status;
    for (const v1::Gpu& gpu : node.gpus()) {
      if (gpu.uuid() == uuid) return gpu;
    }
    ADD_FAILURE() << "no GPU " << uuid;
    return {};
  }
  ::testing::AssertionResult becomes(const std::string& uuid, const std::string& state) {
    const Stopwatch time;
    v1::Gpu now = gpu(uuid);
    while (now.state() != state && time.elapsed() < patience()) {
      std::this_thread::yield();
      now = gpu(uuid);
    }
    if (now.state() == state) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << uuid << " is " << now.state() << ", not " << state;
  }
  RawSession& session() { return session_; }

 private:
  RawSession session_;
};

class DrainTest : public KeptNodeTest {
 protected:
  // The daemon and its keeper.
  ::testing::AssertionResult hold(uint64_t inode, size_t copies) {
    const Stopwatch time;
    size_t found = 0;
    do {  // The keeper closes what it is told to, and tells nobody.
      found = count_inode(daemon->pid(), inode) + count_inode(keeper(), inode);
      if (found == copies) return ::testing::AssertionSuccess();
      std::this_thread::yield();
    } while (time.elapsed() < patience());
    return ::testing::AssertionFailure() << found << " descriptors instead of " << copies;
  }
};

void hold_memory(Rank& rank) {
  const Client client = attach(rank, 20000);
  const Group group = join(client, rank);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(group, "w", {.size_bytes = 1 << 20}, &window)));
  unsigned char* address = nullptr;
  ASSERT_TRUE(succeeded(window.get_address(rank.rank, 0, &address)));
  std::memset(address, 1 + static_cast<int>(rank.rank), 4096);
  EXPECT_TRUE(succeeded(group.barrier(20000)));
  rank.say("ready");
  EXPECT_EQ(rank.hear(), "wait");
  // Rank 0 waits in a call, rank 1 looks now and then.
  const Stopwatch time;
  while (rank.rank == 1 && group.check() == CCO_OK && time.elapsed() < patience()) {
    std::this_thread::yield();
  }
  const Outcome result = outcome(group.barrier(60000));
  uint32_t conditions = 0;
  EXPECT_TRUE(succeeded(group.get_conditions(&conditions)));
  EXPECT_EQ(conditions, rank.rank == 1 ? CCO_CONDITION_DRAINING : 0u);
  rank.say(absl::StrCat(cco_status_name(result.status), " ", result.rank, " ", result.message));
  EXPECT_EQ(rank.hear(), "look");
  EXPECT_TRUE(refused(group.check(), CCO_ABORTED,
                      {"an operator has taken the GPU of rank 1 out of service"}));
  ASSERT_TRUE(succeeded(window.get_address(1, 0, &address)));
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(address[i], 2) << "byte " << i;
  rank.say("looked");
  EXPECT_EQ(rank.hear(), "end");
}

// Goal    after the deadline of a drain neither daemon nor keeper has a descriptor of a slab on
//         that GPU open, whatever processes still map; they have been told why, their memory stays,
//         and what they may still map is shown. Memory of other GPUs is kept. undrain brings it
//         back.
// Method  two processes on two GPUs; the slabs' inodes are known from descriptors that a third
//         session asked for as a member of a group of its own.
TEST_F(DrainTest, NothingIsHeld) {
  Operator root(socket_path());
  Ranks pair(2, hold_memory, ranks());
  EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"ready", "ready"}));
  std::set<uint64_t> slabs;
  for (const OpenFile& file : open_files(daemon->pid())) {
    if (file.path.find("cco-slab") != std::string::npos) slabs.insert(file.inode);
  }
  ASSERT_EQ(slabs.size(), 4u) << "control region and heap of two ranks";
  pair.tell_all("wait");
  ASSERT_TRUE(root.drain("HOST-1", 60000).ok());
  const v1::Gpu draining = root.gpu("HOST-1");
  EXPECT_EQ(draining.state(), "draining");
  EXPECT_GT(draining.drain_left_ms(), 0u);
  ASSERT_EQ(draining.users_size(), 2);
  EXPECT_NE(draining.users(0).pid(), draining.users(1).pid());
  for (const v1::GpuUser& user : draining.users()) {
    EXPECT_TRUE(user.pid() == pair.pid(0) || user.pid() == pair.pid(1)) << user.pid();
    EXPECT_EQ(user.rank_count(), user.pid() == pair.pid(1) ? 1u : 0u);
    EXPECT_EQ(user.group_name(), "job");
    EXPECT_EQ(user.bytes(), draining.slab_bytes());
  }

  ASSERT_TRUE(root.drain("HOST-1", 0).ok());
  EXPECT_TRUE(root.becomes("HOST-1", "drained"));
  for (const std::string& answer : pair.hear_all()) {
    EXPECT_NE(answer.find("CCO_ABORTED 1 "), std::string::npos) << answer;
    EXPECT_NE(answer.find("an operator has taken GPU HOST-1 out of service"), std::string::npos)
        << answer;
  }
  size_t kept = 0;
  for (const uint64_t inode : slabs) kept += count_inode(daemon->pid(), inode) != 0;
  EXPECT_EQ(kept, 2u) << "those on HOST-0";
  for (const uint64_t inode : slabs) {
    if (count_inode(daemon->pid(), inode) != 0) continue;
    EXPECT_TRUE(hold(inode, 0));
  }
  EXPECT_EQ(root.gpu("HOST-1").revoked_bytes(), draining.slab_bytes());
  EXPECT_EQ(root.gpu("HOST-1").slab_bytes(), 0u);
  pair.tell_all("look");
  EXPECT_EQ(pair.hear_all(), (std::vector<std::string>{"looked", "looked"}));

  ASSERT_TRUE(root.undrain("HOST-1").ok());
  EXPECT_EQ(root.gpu("HOST-1").state(), "serving");
  pair.tell_all("end");
  pair.expect_success();
  const Client client = attach(20000);
  const std::vector<Group> groups = form_group(client, "again", 2);
  EXPECT_EQ(root.gpu("HOST-1").slab_count(), 1u);
}

// Goal    nothing new is begun on a GPU that is being drained, and the library says so at once
//         rather than wait for another daemon.
TEST_F(DrainTest, NewWorkIsRefused) {
  Operator root(socket_path());
  const Client client = attach(60000);
  const std::vector<Group> groups = form_group(client, "job", 2);
  ASSERT_TRUE(root.drain("HOST-1", 600000).ok());
  const Stopwatch time;
  Group group;
  EXPECT_TRUE(refused(
      Group::create(client, {.rank = 0, .size = 1, .gpu_uuid = "HOST-1", .name = "new"}, &group),
      CCO_UNAVAILABLE, {"HOST-1 is being drained by an operator", "ccoctl undrain"}));
  std::vector<Window> windows(2);
  for (const Outcome& late : on_threads(2, [&](uint32_t rank) {
         return Window::create(groups[rank], "w", {.size_bytes = 8 << 20}, &windows[rank]);
       })) {
    EXPECT_TRUE(refused(late, CCO_UNAVAILABLE, {"is being drained"}));
  }
  EXPECT_LT(time.elapsed(), std::chrono::seconds(60));
  EXPECT_TRUE(succeeded(
      Group::create(client, {.rank = 0, .size = 1, .gpu_uuid = "HOST-2", .name = "new"}, &group)));
  ASSERT_TRUE(root.undrain("").ok());
}

// Goal    a drain goes on over the daemon's death: with the same deadline while it waits, and as it
//         was once it is done.
TEST_F(DrainTest, SurvivesTheDaemon) {
  Operator root(socket_path());
  {
    const Client client = attach(20000);
    const std::vector<Group> groups = form_group(client, "job", 2);
    ASSERT_TRUE(root.drain("HOST-1", 3000000).ok());
    kill_and_start();
    const v1::Gpu gpu = root.gpu("HOST-1");
    EXPECT_EQ(gpu.state(), "draining");
    EXPECT_GT(gpu.drain_left_ms(), 1000000u);
    EXPECT_LE(gpu.drain_left_ms(), 3000000u);
    ASSERT_TRUE(root.drain("HOST-1", 0).ok());
    EXPECT_TRUE(root.becomes("HOST-1", "drained"));
    EXPECT_TRUE(root.drain("HOST-2", 0).ok());
    kill_and_start();
    EXPECT_EQ(root.gpu("HOST-1").state(), "drained");
    EXPECT_GT(root.gpu("HOST-1").revoked_bytes(), 0u);
    EXPECT_EQ(root.gpu("HOST-2").state(), "drained");
    EXPECT_EQ(root.gpu("HOST-0").state(), "serving");
    EXPECT_TRUE(refused(groups[0].barrier(20000), CCO_ABORTED, {"out of service"}));
  }
  ASSERT_TRUE(root.undrain("").ok());
  kill_and_start();
  for (const char* uuid : {"HOST-0", "HOST-1", "HOST-2"}) {
    EXPECT_EQ(root.gpu(uuid).state(), "serving");
  }
}

// Goal    ccoctl shows who is in the way, waits until the GPU is drained, and brings it back.
TEST_F(DrainTest, Ccoctl) {
  const Client client = attach(20000);
  std::vector<Group> groups = form_group(client, "job", 2);
  const std::string begun =
      ccoctl(socket_path(), {"drain", "--gpu", "HOST-1", "--deadline", "20m", "--no-wait"});
  EXPECT_NE(begun.find("HOST-1 is draining, "), std::string::npos) << begun;
  EXPECT_NE(begun.find(absl::StrCat("pid ", ::getpid(), " (uid ")), std::string::npos) << begun;
  EXPECT_NE(begun.find("1 rank of group "), std::string::npos) << begun;
  const std::string done = ccoctl(socket_path(), {"drain", "--gpu", "HOST-1", "--deadline", "0"});
  EXPECT_NE(done.find("HOST-1 is drained; "), std::string::npos) << done;
  EXPECT_NE(done.find("may still be mapped by:"), std::string::npos) << done;
  EXPECT_NE(ccoctl(socket_path(), {"gpus"}).find("drained, "), std::string::npos);
  const std::string back = ccoctl(socket_path(), {"undrain"});
  EXPECT_NE(back.find("HOST-1 is serving"), std::string::npos) << back;
}

// A daemon on the stand-in for AMD's runtime, which opens files of the GPUs it may see until its
// process ends.
class DeviceFilesTest : public ::testing::Test {
 protected:
  static std::string uuid(int gpu) { return absl::StrCat("GPU-fa4e00000000000", gpu); }
  void start(bool keeps_state, const std::string& more_environment = "") {
    DaemonProcess::Options options;
    options.driver = "hip";
    options.config = keeps_state ? absl::StrCat("state_dir: \"", folder_.file("state"), "\"") : "";
    options.socket_path = folder_.file("memd.sock");
    options.environment = {{"CCO_HIP_LIBRARY", CCO_FAKE_HIP_LIBRARY},
                           {"FAKE_HIP_DEVICES", "3"},
                           {"FAKE_HIP_DEVICE_FILES", folder_.path()}};
    if (!more_environment.empty()) options.environment["HIP_VISIBLE_DEVICES"] = more_environment;
    auto started = DaemonProcess::start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    daemon = *std::move(started);
  }
  // "kfd renderD128 …", of daemon and keeper.
  std::string device_files() const {
    std::set<std::string> names;
    for (const pid_t pid : {daemon->pid(), keeper_of(folder_.file("state"))}) {
      if (pid <= 0) continue;
      for (const OpenFile& file : open_files(pid)) {
        const std::string name = file.path.substr(file.path.rfind('/') + 1);
        if (name == "kfd" || name.find("renderD") == 0) names.insert(name);
      }
    }
    return absl::StrJoin(names, " ");
  }
  std::string socket_path() const { return folder_.file("memd.sock"); }
  v1::JoinGroupResponse join(RawSession& session, const std::string& name,
                             const std::string& gpu_uuid) const {
    v1::JoinGroupRequest request = RawSession::join_request(name);
    request.set_gpu_uuid(gpu_uuid);
    v1::JoinGroupResponse response;
    const absl::Status status = session.call(&Stub::JoinGroup, request, &response);
    EXPECT_TRUE(status.ok()) << status;
    return response;
  }

  std::unique_ptr<DaemonProcess> daemon;

 private:
  TempDir folder_;
};

// Goal    a driver whose library holds device files lets go of a drained GPU: the daemon starts
//         itself anew without it, and keeps sessions, groups and memory of the others. undrain
//         opens it again. With every GPU drained the library is not opened at all.
// Method  the files that daemon and keeper have open, as the kernel says.
TEST_F(DeviceFilesTest, AreClosed) {
  start(true);
  const pid_t pid = daemon->pid();
  Operator root(socket_path());
  RawSession session(socket_path());
  const v1::JoinGroupResponse kept = join(session, "kept", uuid(0));
  join(session, "revoked", uuid(1));
  EXPECT_EQ(device_files(), "kfd renderD128 renderD129 renderD130");

  ASSERT_TRUE(root.drain(uuid(1), 0).ok());
  EXPECT_TRUE(root.becomes(uuid(1), "drained"));
  EXPECT_TRUE(daemon->logs("restarting"));
  EXPECT_TRUE(daemon->logs("state_adopted"));
  const v1::CreateWindowResponse window = session.create_window(kept.group_id(), "w");
  EXPECT_NE(window.window_id(), 0u);
  EXPECT_EQ(device_files(), "kfd renderD128 renderD130");
  EXPECT_EQ(root.gpu(uuid(1)).state(), "drained");
  EXPECT_EQ(root.gpu(uuid(1)).name(), "Fake Instinct") << "it is still one of the node's";
  EXPECT_EQ(root.gpu(uuid(1)).slab_count(), 0u);

  ASSERT_TRUE(root.drain("", 0).ok());
  EXPECT_TRUE(root.becomes(uuid(0), "drained"));
  EXPECT_TRUE(root.becomes(uuid(2), "drained"));
  EXPECT_EQ(device_files(), "");
  EXPECT_EQ(daemon->pid(), pid);

  ASSERT_TRUE(root.undrain("").ok());
  for (int gpu = 0; gpu < 3; ++gpu) EXPECT_TRUE(root.becomes(uuid(gpu), "serving"));
  EXPECT_EQ(device_files(), "kfd renderD128 renderD129 renderD130");
  for (int gpu = 0; gpu < 3; ++gpu) join(session, absl::StrCat("again ", gpu), uuid(gpu));
  EXPECT_EQ(daemon->stop(), 0) << daemon->log();
}

// Goal    what an administrator has hidden from the library stays hidden.
TEST_F(DeviceFilesTest, TheAdministratorsChoiceStays) {
  start(true, "0,2");
  Operator root(socket_path());
  EXPECT_EQ(device_files(), "kfd renderD128 renderD130");
  ASSERT_TRUE(root.drain(uuid(0), 0).ok());
  EXPECT_TRUE(root.becomes(uuid(0), "drained"));
  EXPECT_EQ(device_files(), "kfd renderD130");
  ASSERT_TRUE(root.undrain("").ok());
  EXPECT_TRUE(root.becomes(uuid(0), "serving"));
  EXPECT_EQ(device_files(), "kfd renderD128 renderD130");
  EXPECT_EQ(daemon->stop(), 0) << daemon->log();
}

// Goal    a daemon that keeps no state refuses, with the reason, before anything is revoked.
TEST_F(DeviceFilesTest, RefusedWithoutState) {
  start(false);
  Operator root(socket_path());
  EXPECT_TRUE(refused(root.drain(uuid(0), 0), StatusCode::kFailedPrecondition,
                      {"'hip' lets go of a GPU only when the process ends", "Set state_dir"}));
  EXPECT_EQ(root.gpu(uuid(0)).state(), "serving");
  EXPECT_EQ(daemon->stop(), 0) << daemon->log();
}

// Goal    a drain without records works where the driver needs no other process.
TEST(DrainWithoutState, HostNeedsNoRestart) {
  auto started = DaemonProcess::start();
  ASSERT_TRUE(started.ok()) << started.status();
  Operator root((*started)->socket_path());
  ASSERT_TRUE(root.drain("", 0).ok());
  EXPECT_TRUE(root.becomes("HOST-3", "drained"));
  ASSERT_TRUE(root.undrain("").ok());
  EXPECT_EQ(root.gpu("HOST-3").state(), "serving");
  EXPECT_EQ((*started)->stop(), 0);
}

}  // namespace
}  // namespace cco::test
