// Loads, stores and additions on words that several GPUs or blocks share. Order and scope are in
// the name; nothing is ordered by default. T is uint32_t or uint64_t, S is system (all GPUs and
// CPUs) or device (this GPU).
//
//   T    load_relaxed_S(const T*)        the word alone
//   T    load_acquire_S(const T*)        later accesses stay later
//   void store_relaxed_S(T*, T)
//   void store_release_S(T*, T)          earlier accesses stay earlier
//   void add_relaxed_S(T*, T)
//   void add_release_S(T*, T)
//   T    fetch_add_relaxed_S(T*, T)      returns the value before
//   T    fetch_add_acq_rel_S(T*, T)
//   T    compare_exchange_relaxed_S(T*, T expected, T desired)   returns the value before: stored
//   T    compare_exchange_acq_rel_S(T*, T expected, T desired)   if that was `expected`
//
//   void publish_S()                     one release, shared by all that follow of
//   void store_published_S(T*, T)
//   void add_published_S(T*, T)
//   void store_pair_published_system(uint64_t*, first, second)   two words, 16-byte aligned, each
//                                        whole, in any order on GPUs; on the host the first is last
//   void acquire_S(const T*)             turns an earlier relaxed load of that word into an
//   acquire:
//                                        poll relaxed, acquire once
//
// "Earlier" covers this thread's accesses and those of threads it has synchronised with. Pointers
// are to global memory, naturally aligned. On the host every pair is a real C++ release and acquire
// of the word itself, because race detectors do not model fences.
#pragma once

#include "cco/device/platform.h"

#if CCO_CUDA
#include "cco/device/impl/atomic_cuda.h"
#elif CCO_HIP
#include "cco/device/impl/atomic_hip.h"
#else
#include "cco/device/impl/atomic_host.h"
#endif
