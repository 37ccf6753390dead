#include "device/transport/kfd_queues.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/kfd_api.h"
#include "device/transport/user_queue.h"

namespace cco {
namespace {

constexpr uint64_t kRingBytes = 256 * 1024;

absl::Status error(const char* call, kfd::Result result, const std::string& what) {
  const std::string text =
      absl::StrFormat("%s failed with HSAKMT_STATUS %d: %s", call, result, what);
  return result == kfd::kNoMemory ? absl::ResourceExhaustedError(text)
                                  : absl::FailedPreconditionError(text);
}

absl::StatusOr<kfd::Api> load_api() {
  auto library = DynamicLibrary::open("CCO_HSAKMT_LIBRARY", {"libhsakmt.so.1", "libhsakmt.so"});
  if (!library.ok()) return absl::FailedPreconditionError(library.status().message());
  kfd::Api api;
#define CCO_RESOLVE(field, name, ...)                              \
  if (!api.field.resolve(*library, #name)) {                       \
    return absl::FailedPreconditionError(                          \
        absl::StrCat(library->path(), " has no function " #name)); \
  }
  CCO_KFD_CALLS(CCO_RESOLVE)
#undef CCO_RESOLVE
  return api;
}

/// Owner of the connection to the driver, of rings and of queues; gives them back in reverse.
class KfdQueues final : public SdmaProvider {
 public:
  explicit KfdQueues(kfd::Api api) : api_(std::move(api)) {}
  ~KfdQueues() override {
    while (!steps_.empty()) {
      undo(steps_.back());
      steps_.pop_back();
    }
  }

  absl::Status connect() {
    const kfd::Result result = api_.open();
    if (result != kfd::kSuccess) return error("hsaKmtOpenKFD", result, "is /dev/kfd accessible?");
    steps_.push_back({Step::kConnection, nullptr, 0});
    return absl::OkStatus();
  }

  /// On the first of `engines` that has a queue left.
  absl::StatusOr<UserQueuePlaces> add_queue(const KfdNode& node,
                                            const std::vector<uint32_t>& engines,
                                            const std::string& what) {
    void* ring = nullptr;
    kfd::Result result = api_.allocate(node.id, kRingBytes, {kfd::kRingMemory}, &ring);
    if (result != kfd::kSuccess) return error("hsaKmtAllocMemory", result, what);
    steps_.push_back({Step::kMemory, ring, 0});
    uint64_t address = 0;
    result = api_.map(ring, kRingBytes, &address);
    if (result != kfd::kSuccess) return error("hsaKmtMapMemoryToGPU", result, what);
    steps_.push_back({Step::kMapping, ring, 0});
    for (const uint32_t engine : engines) {
      kfd::QueueResource queue{};
      result = api_.create_queue(node.id, kfd::kQueueSdmaByEngineId, kfd::kWholeEngine,
                                 kfd::kPriorityMaximum, engine, ring, kRingBytes, nullptr, &queue);
      if (result == kfd::kNoMemory) continue;
      if (result != kfd::kSuccess) break;
      steps_.push_back({Step::kQueue, nullptr, queue.id});
      absl::StrAppend(&engines_, engines_.empty() ? "" : ",", engine);
      return UserQueuePlaces{.ring = reinterpret_cast<uint64_t>(ring),
                             .ring_bytes = kRingBytes,
                             .read_index = queue.read_index,
                             .write_index = queue.write_index,
                             .doorbell = queue.doorbell};
    }
    return error("hsaKmtCreateQueueExt", result, what);
  }

  std::string_view name() const override { return "user-queue"; }
  std::string describe() const override {
    return absl::StrFormat("copy engines %s of this GPU, rings of %d bytes", engines_, kRingBytes);
  }
  uint64_t device() const override { return device_; }
  void set_device(uint64_t device) { device_ = device; }

 private:
  struct Step {
    enum Kind { kConnection, kMemory, kMapping, kQueue } kind;
    void* memory;
    uint64_t queue;
  };
  void undo(const Step& step) {
    switch (step.kind) {
      case Step::kConnection:
        api_.close();
        break;
      case Step::kMemory:
        api_.free(step.memory, kRingBytes);
        break;
      case Step::kMapping:
        api_.unmap(step.memory);
        break;
      case Step::kQueue:
        api_.destroy_queue(step.queue);
        break;
    }
  }

  const kfd::Api api_;
  std::vector<Step> steps_;
  std::string engines_;
  uint64_t device_ = 0;
};

absl::StatusOr<uint32_t> packets_of(const std::string& arch) {
  for (const char* name : {"gfx90a", "gfx942", "gfx950"}) {
    if (absl::StartsWith(arch, name)) return CCO_SDMA_PACKETS_GFX9;
  }
  if (absl::StartsWith(arch, "gfx1250")) return CCO_SDMA_PACKETS_GFX1250;
  return absl::FailedPreconditionError(
      absl::StrFormat("user queues need gfx90a, gfx942, gfx950 or gfx1250, not '%s'", arch));
}

absl::StatusOr<const KfdNode*> node_of(const std::vector<KfdNode>& nodes,
                                       const std::string& pci_bus_id) {
  const KfdNode* const node = find_kfd_node(nodes, pci_bus_id);
  if (node != nullptr) return node;
  return absl::FailedPreconditionError(
      absl::StrFormat("AMD's driver knows no GPU at PCI address '%s'", pci_bus_id));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SdmaProvider>> open_kfd_queues(const TransportTeam& team,
                                                              const SdmaPlan& plan,
                                                              const KfdOptions& options) {
  CCO_ASSIGN_OR_RETURN(const uint32_t packets, packets_of(team.arch));
  if (team.pci_bus_ids.size() != team.lsa_size) {
    return absl::FailedPreconditionError("the PCI addresses of the team's GPUs are not known");
  }
  CCO_ASSIGN_OR_RETURN(const std::vector<KfdNode> nodes, read_kfd_nodes(options.nodes_path));
  CCO_ASSIGN_OR_RETURN(const KfdNode* const own, node_of(nodes, team.pci_bus_ids[team.lsa_rank]));
  CCO_ASSIGN_OR_RETURN(kfd::Api api, load_api());
  auto provider = std::make_unique<KfdQueues>(std::move(api));
  CCO_RETURN_IF_ERROR(provider->connect());
  std::vector<UserQueuePlaces> places;
  for (uint32_t peer = 0; peer < team.lsa_size; ++peer) {
    CCO_ASSIGN_OR_RETURN(const KfdNode* const node, node_of(nodes, team.pci_bus_ids[peer]));
    std::vector<uint32_t> engines;
    for (const uint32_t engine : own->engines_to(*node)) {
      if ((options.allowed_engines >> engine & 1) != 0) engines.push_back(engine);
    }
    if (engines.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("no copy engine for LSA rank %d among those allowed", peer));
    }
    for (uint32_t queue = 0; queue < plan.queue_count; ++queue) {
      const std::string what = absl::StrFormat("queue %d to LSA rank %d", queue, peer);
      CCO_ASSIGN_OR_RETURN(UserQueuePlaces made, provider->add_queue(*own, engines, what));
      places.push_back(made);
      // The next one begins at the next engine.
      engines.push_back(engines.front());
      engines.erase(engines.begin());
    }
  }
  CCO_ASSIGN_OR_RETURN(
      const uint64_t device,
      write_user_queue_tables(team, plan, packets, device::impl::kSdmaLargestCopy, places));
  provider->set_device(device);
  return provider;
}

}  // namespace cco
