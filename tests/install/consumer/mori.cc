// A program as written for MORI CCO: four ranks, threads of it, pass their numbers to the right.
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "mori/cco/cco.hpp"

namespace {

using mori::cco::ccoBarrierAll;
using mori::cco::ccoComm;
using mori::cco::ccoCommCreate;
using mori::cco::ccoCommDestroy;
using mori::cco::ccoGetLastErrorText;
using mori::cco::ccoGetPeerPtr;
using mori::cco::ccoGetUniqueId;
using mori::cco::ccoMemAlloc;
using mori::cco::ccoMemFree;
using mori::cco::ccoUniqueId;
using mori::cco::ccoWindow_t;
using mori::cco::ccoWindowDeregister;
using mori::cco::ccoWindowRegister;

constexpr int kSize = 4;

bool pass_right(const ccoUniqueId& id, int rank, uint64_t* received) {
  ccoComm* comm = nullptr;
  void* local = nullptr;
  ccoWindow_t window = nullptr;
  if (ccoCommCreate(id, kSize, rank, 0, &comm) != 0) return false;
  if (ccoMemAlloc(comm, 4096, &local) != 0) return false;
  if (ccoWindowRegister(comm, local, 4096, &window) != 0) return false;
  void* const right = ccoGetPeerPtr(comm, local, (rank + 1) % kSize);
  if (right == nullptr) return false;
  *static_cast<uint64_t*>(right) = static_cast<uint64_t>(rank);
  if (ccoBarrierAll(comm) != 0) return false;
  *received = *static_cast<uint64_t*>(local);
  if (ccoWindowDeregister(comm, window) != 0 || ccoMemFree(comm, local) != 0) return false;
  return ccoBarrierAll(comm) == 0 && ccoCommDestroy(comm) == 0;
}

}  // namespace

int main() {
  ccoUniqueId id;
  if (ccoGetUniqueId(&id) != 0) return 1;
  std::vector<uint64_t> received(kSize, ~uint64_t{0});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&id, &received, rank] {
      if (pass_right(id, rank, &received[rank])) return;
      std::fprintf(stderr, "rank %d: %s\n", rank, ccoGetLastErrorText());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < kSize; ++rank) {
    std::printf("rank %d received %zu\n", rank, size_t{received[rank]});
  }
}
