// NCCL's device API doing what cco-bench does, for ratios from one run: its LSA barrier, a store
// loop over its peer pointer, and its window registration. One process, every GPU a rank; it takes
// two at least, since NCCL refuses ranks that share a GPU. Prints one JSON object.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -o nccl_baseline nccl_baseline.cu -lnccl
//
// The API is nccl_device.h's (NCCL 2.28).
#include <nccl.h>
#include <nccl_device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                          \
  do {                                                                       \
    if (auto result = (call); result != 0) {                                 \
      std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, \
                   static_cast<int>(result));                                \
      std::exit(1);                                                          \
    }                                                                        \
  } while (0)

constexpr int kBarriers = 2000, kRepetitions = 15;
constexpr size_t kBytes = size_t{256} << 20;

__global__ void lsa_barrier(ncclDevComm comm, int iterations) {
  ncclLsaBarrierSession<ncclCoopCta> session(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
  for (int i = 0; i < iterations; ++i) session.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

__global__ void store_loop(ncclWindow_t window, int peer, const uint4* source, size_t count) {
  uint4* const to = ncclSymPtr<uint4>(window, 0).lsaPtr(peer);
  const size_t step = size_t{gridDim.x} * blockDim.x;
  size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 7 * step < count; i += 8 * step) {
    uint4 held[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) held[k] = source[i + k * step];
#pragma unroll
    for (int k = 0; k < 8; ++k) to[i + k * step] = held[k];
  }
  for (; i < count; i += step) to[i] = source[i];
}

struct Rank {
  ncclComm_t comm;
  ncclDevComm device;
  ncclWindow_t window;
  void* memory;
  void* source;
  cudaStream_t stream;
  cudaEvent_t begin, end;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs `body` on one thread for each rank, as NCCL's blocking collective calls want it.
void on_all(std::vector<Rank>& ranks, const std::function<void(int, Rank&)>& body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      CHECK(cudaSetDevice(static_cast<int>(i)));
      body(static_cast<int>(i), ranks[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

double register_ms(std::vector<Rank>& ranks, size_t bytes) {
  std::vector<double> times(ranks.size());
  on_all(ranks, [&](int i, Rank& rank) {
    void* memory;
    ncclWindow_t window;
    CHECK(ncclMemAlloc(&memory, bytes));
    const auto start = std::chrono::steady_clock::now();
    CHECK(ncclCommWindowRegister(rank.comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    times[i] =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    CHECK(ncclCommWindowDeregister(rank.comm, window));
    CHECK(ncclMemFree(memory));
  });
  return *std::max_element(times.begin(), times.end());
}

double barrier_us(std::vector<Rank>& ranks, int iterations) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    CHECK(cudaSetDevice(static_cast<int>(i)));
    CHECK(cudaEventRecord(ranks[i].begin, ranks[i].stream));
    lsa_barrier<<<1, 128, 0, ranks[i].stream>>>(ranks[i].device, iterations);
    CHECK(cudaEventRecord(ranks[i].end, ranks[i].stream));
  }
  float ms = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    CHECK(cudaSetDevice(static_cast<int>(i)));
    CHECK(cudaStreamSynchronize(ranks[i].stream));
    if (i == 0) CHECK(cudaEventElapsedTime(&ms, ranks[i].begin, ranks[i].end));
  }
  return ms * 1000 / iterations;
}

double store_gbps(Rank& rank, int peer, int blocks) {
  CHECK(cudaSetDevice(0));
  CHECK(cudaEventRecord(rank.begin, rank.stream));
  store_loop<<<blocks, 512, 0, rank.stream>>>(rank.window, peer, static_cast<uint4*>(rank.source),
                                              kBytes / 16);
  CHECK(cudaEventRecord(rank.end, rank.stream));
  CHECK(cudaStreamSynchronize(rank.stream));
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, rank.begin, rank.end));
  return kBytes / (ms * 1e6);
}

double median_of(const std::function<double()>& measure) {
  measure();  // Warm-up.
  std::vector<double> values;
  for (int i = 0; i < kRepetitions; ++i) values.push_back(measure());
  return median(values);
}

int main() {
  int count = 0, version = 0;
  CHECK(cudaGetDeviceCount(&count));
  CHECK(ncclGetVersion(&version));
  if (count < 2) {
    std::printf(
        "{\"nccl\": %d, \"skipped\": \"NCCL takes a GPU for each rank, and this machine has "
        "%d\"}\n",
        version, count);
    return 0;
  }
  std::vector<Rank> ranks(2);
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, nullptr));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i].comm = comms[i];
  double create_ms = 0;
  on_all(ranks, [&](int i, Rank& rank) {
    CHECK(ncclMemAlloc(&rank.memory, kBytes));
    CHECK(ncclCommWindowRegister(rank.comm, rank.memory, kBytes, &rank.window,
                                 NCCL_WIN_COLL_SYMMETRIC));
    ncclDevCommRequirements requirements{};
    requirements.lsaBarrierCount = 16;
    const auto start = std::chrono::steady_clock::now();
    CHECK(ncclDevCommCreate(rank.comm, &requirements, &rank.device));
    if (i == 0)
      create_ms =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count();
    CHECK(cudaMalloc(&rank.source, kBytes));
    CHECK(cudaMemset(rank.source, i + 1, kBytes));
    CHECK(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&rank.begin));
    CHECK(cudaEventCreate(&rank.end));
    CHECK(cudaDeviceSynchronize());
  });
  const double window_ms = median_of([&] { return register_ms(ranks, size_t{2} << 20); });
  const double barrier = median_of([&] { return barrier_us(ranks, kBarriers); });
  const double put132 = median_of([&] { return store_gbps(ranks[0], 1, 132); });
  const double put264 = median_of([&] { return store_gbps(ranks[0], 1, 264); });
  std::printf(
      "{\"nccl\": %d, \"lsa_barrier_us\": %.3f, \"window_register_ms\": %.3f, "
      "\"dev_comm_create_ms\": %.3f, "
      "\"store_256MiB_132x512_gbps\": %.1f, \"store_256MiB_264x512_gbps\": %.1f}\n",
      version, barrier, window_ms, create_ms, put132, put264);
  return 0;
}
