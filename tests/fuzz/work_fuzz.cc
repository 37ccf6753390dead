// Goal    whatever a client writes into a ring of work items, their consumer touches only what lies
//         in registered windows and signals, completes every item, and tells the first bad one.
// Method  the first byte's lowest bit says whether words keep the marks they came with, which say
//         that they are there; the rest are items. The back-end compares every address with a model
//         of its own, and scribbles on a lonely item while it is under way, as a hostile client
//         would.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "client/base/status_macros.h"
#include "device/transport/work_consumer.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr uint32_t kRanks = 3, kSignals = 8, kDepth = 16;
constexpr uint64_t kWindowBytes = 512, kGenerations[] = {1, 7};

/// What a rank has: two windows, and the communicator's words, which hold the signals alone.
struct Rank {
  alignas(16) std::array<std::array<char, kWindowBytes>, std::size(kGenerations)> windows{};
  std::array<uint64_t, kSignals> signals{};
};

uint64_t address_of(const void* place) { return reinterpret_cast<uint64_t>(place); }

bool lies_in(uint64_t address, uint64_t bytes, const void* begin, uint64_t size) {
  return address >= address_of(begin) && bytes <= size &&
         address - address_of(begin) <= size - bytes;
}

struct Model {
  std::array<Rank, kRanks> ranks;
  std::vector<cco_work_item> items{kDepth};
  size_t item_count = 0;
  uint64_t completed = 0;
  uint64_t error = 0;
};

/// Rank 2 is not reached.
bool reached(uint32_t peer) { return peer < 2; }

bool in_window(uint64_t generation, uint64_t offset, uint64_t bytes) {
  using Wide = unsigned __int128;
  return std::count(std::begin(kGenerations), std::end(kGenerations), generation) == 1 &&
         Wide{offset} + bytes <= kWindowBytes;
}

bool is_sound(const cco_work_item& item) {
  const uint32_t operation = CCO_WORK_OPERATION(item.header);
  const uint32_t signals = CCO_WORK_SIGNALS(item.header);
  const bool is_value = operation == CCO_WORK_VALUE;
  if (operation > CCO_WORK_VALUE || signals > 3 || !reached(CCO_WORK_PEER(item.header))) {
    return false;
  }
  if (is_value && item.bytes != 1 && item.bytes != 2 && item.bytes != 4 && item.bytes != 8) {
    return false;
  }
  if (operation != CCO_WORK_NONE &&
      !in_window(item.remote_generation, item.remote_offset, item.bytes)) {
    return false;
  }
  if (operation != CCO_WORK_NONE && !is_value &&
      !in_window(item.local_generation, item.local_offset, item.bytes)) {
    return false;
  }
  return signals == 0 || item.signal_index < kSignals;
}

class StrictBackend : public cco::WorkBackend {
 public:
  explicit StrictBackend(Model* model) : model_(*model) {}

  absl::Status copy(uint32_t, uint64_t destination, uint64_t source, uint64_t bytes) override {
    const bool from_ring =
        lies_in(source, bytes, model_.items.data(), kDepth * sizeof(cco_work_item));
    CCO_ASSERT(in_some_window(destination, bytes));
    CCO_ASSERT(from_ring || in_some_window(source, bytes));
    std::memmove(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source),
                 bytes);
    scribble();
    return absl::OkStatus();
  }

  absl::Status write_words(uint32_t, absl::Span<const cco::StreamWord> words) override {
    CCO_ASSERT(!words.empty() && words.size() <= cco::kMaxStreamWords);
    for (const cco::StreamWord& word : words) {
      CCO_ASSERT(word.address % sizeof word.value == 0);
      CCO_ASSERT(is_word(word.address));
      std::memcpy(reinterpret_cast<void*>(word.address), &word.value, sizeof word.value);
    }
    scribble();
    return absl::OkStatus();
  }

 private:
  /// Whether a word may be stored there.
  bool is_word(uint64_t address) const {
    bool allowed = address == address_of(&model_.completed) || in_some_window(address, 8);
    for (const Rank& rank : model_.ranks) {
      allowed = allowed || lies_in(address, 8, rank.signals.data(), sizeof rank.signals);
    }
    return allowed;
  }
  bool in_some_window(uint64_t address, uint64_t bytes) const {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const auto& window : model_.ranks[rank].windows) {
        if (lies_in(address, bytes, window.data(), kWindowBytes)) return reached(rank);
      }
    }
    return false;
  }
  /// Of several items, those that were not taken yet would suffer.
  void scribble() {
    if (model_.item_count == 1) std::memset(model_.items.data(), 0xee, sizeof model_.items[0]);
  }

  Model& model_;
};

using Words = std::array<uint64_t, sizeof(cco_work_item) / sizeof(uint64_t)>;

Words words_of(const cco_work_item& item) {
  Words words;
  std::memcpy(words.data(), &item, sizeof item);
  return words;
}

/// The items of one input, one lap at most.
std::vector<cco_work_item> items_of(const uint8_t* bytes, size_t size) {
  std::vector<cco_work_item> items(std::min<size_t>((size - 1) / sizeof(cco_work_item), kDepth));
  if (!items.empty()) std::memcpy(items.data(), bytes + 1, items.size() * sizeof items[0]);
  if ((bytes[0] & 1) == 0) {
    for (size_t i = 0; i < items.size(); ++i) {
      Words words = words_of(items[i]);
      words[0] = (words[0] & ~uint64_t{0xffffffff}) | (i + 1);
      for (size_t w = 1; w < words.size(); ++w) words[w] |= CCO_WORK_TOP;
      std::memcpy(&items[i], words.data(), sizeof items[i]);
    }
  }
  return items;
}

/// How many items are there in full, from the first on; they then are as their consumer reads them.
size_t take(std::vector<cco_work_item>& items) {
  constexpr uint64_t kDeltaTop = uint64_t{CCO_WORK_DELTA_TOP} << 40;
  for (size_t i = 0; i < items.size(); ++i) {
    Words words = words_of(items[i]);
    bool all = CCO_WORK_SEQUENCE(words[0]) == i + 1;
    for (size_t w = 1; w < words.size(); ++w) {
      all = all && (words[w] & CCO_WORK_TOP) != 0;
      words[w] &= ~CCO_WORK_TOP;
    }
    if (!all) return i;
    words[0] &= ~kDeltaTop;
    std::memcpy(&items[i], words.data(), sizeof items[i]);
  }
  return items.size();
}

cco::WorkMeaning meaning() {
  cco::WorkMeaning meaning;
  // That rank 2 is nowhere is for the consumer to find out.
  meaning.world_rank = [](uint32_t peer) {
    return peer < kRanks ? std::optional<uint32_t>(peer) : std::nullopt;
  };
  meaning.signal_offset = [](uint32_t, uint64_t index) {
    return index < kSignals ? std::optional<uint64_t>(8 * index) : std::nullopt;
  };
  return meaning;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  Model model;
  std::vector<cco_work_item> items = items_of(bytes, size);
  std::copy(items.begin(), items.end(), model.items.begin());
  model.item_count = items.size();

  cco::WindowRegistry windows;
  cco::TransportTeam team;
  team.size = kRanks;
  team.windows = &windows;
  for (Rank& rank : model.ranks) team.words.push_back(address_of(rank.signals.data()));
  team.words[2] = 0;
  for (size_t w = 0; w < std::size(kGenerations); ++w) {
    cco::WindowPlaces places{kGenerations[w], kWindowBytes, {}};
    for (Rank& rank : model.ranks) places.bases.push_back(address_of(rank.windows[w].data()));
    places.bases[2] = 0;
    CCO_ASSERT(windows.add(std::move(places)).ok());
  }
  cco::WorkRing ring;
  ring.items = model.items.data();
  ring.completed = &model.completed;
  ring.error = &model.error;
  ring.items_address = address_of(model.items.data());
  ring.completed_address = address_of(&model.completed);
  ring.error_address = address_of(&model.error);
  ring.depth = kDepth;

  StrictBackend backend(&model);
  cco::WorkConsumer consumer(team, meaning(), {ring}, &backend, {.max_copy_bytes = 100});
  for (uint32_t steps = 0; consumer.step(); ++steps) CCO_ASSERT(steps <= items.size());

  const size_t taken = take(items);
  CCO_ASSERT(CCO_WORK_DONE(model.completed) == taken);
  const auto bad = std::find_if_not(items.begin(), items.begin() + taken, is_sound);
  const bool is_good = bad == items.begin() + taken;
  CCO_ASSERT((model.error == 0) == is_good);
  CCO_ASSERT(((model.completed & CCO_WORK_FAILED) == 0) == is_good);
  CCO_ASSERT(is_good || CCO_WORK_ERROR_PEER(model.error) == CCO_WORK_PEER(bad->header));
  return 0;
}

std::vector<std::string> fuzz_seeds() { return read_corpus("work"); }
