// amdgcn words. Every release is a fence, a written-out wait on gfx9 (clang may drop its own), and
// a relaxed access, kept in one basic block so that the ISA check can see the three together.
#pragma once

namespace cco::device {

#define CCO_HIP_SCOPE(scope, hip_scope, fence_scope)                                          \
  template <typename T>                                                                       \
  CCO_DEVICE T load_relaxed_##scope(const T* word) {                                          \
    return __hip_atomic_load(word, __ATOMIC_RELAXED, hip_scope);                              \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T load_acquire_##scope(const T* word) {                                          \
    return __hip_atomic_load(word, __ATOMIC_ACQUIRE, hip_scope);                              \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void acquire_##scope(const T*) {                                                 \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, fence_scope);                                    \
  }                                                                                           \
  CCO_DEVICE void publish_##scope() {                                                         \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, fence_scope);                                    \
    hard_wait();                                                                              \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void store_relaxed_##scope(T* word, same<T> value) {                             \
    __hip_atomic_store(word, value, __ATOMIC_RELAXED, hip_scope);                             \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void store_published_##scope(T* word, same<T> value) {                           \
    __hip_atomic_store(word, value, __ATOMIC_RELAXED, hip_scope);                             \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void store_release_##scope(T* word, same<T> value) {                             \
    publish_##scope();                                                                        \
    __hip_atomic_store(word, value, __ATOMIC_RELAXED, hip_scope);                             \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void add_relaxed_##scope(T* word, same<T> value) {                               \
    __hip_atomic_fetch_add(word, value, __ATOMIC_RELAXED, hip_scope);                         \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void add_published_##scope(T* word, same<T> value) {                             \
    __hip_atomic_fetch_add(word, value, __ATOMIC_RELAXED, hip_scope);                         \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void add_release_##scope(T* word, same<T> value) {                               \
    publish_##scope();                                                                        \
    __hip_atomic_fetch_add(word, value, __ATOMIC_RELAXED, hip_scope);                         \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T fetch_add_relaxed_##scope(T* word, same<T> value) {                            \
    return __hip_atomic_fetch_add(word, value, __ATOMIC_RELAXED, hip_scope);                  \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T fetch_add_acq_rel_##scope(T* word, same<T> value) {                            \
    publish_##scope();                                                                        \
    return __hip_atomic_fetch_add(word, value, __ATOMIC_ACQUIRE, hip_scope);                  \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T compare_exchange_relaxed_##scope(T* word, same<T> expected, same<T> desired) { \
    __hip_atomic_compare_exchange_strong(word, &expected, desired, __ATOMIC_RELAXED,          \
                                         __ATOMIC_RELAXED, hip_scope);                        \
    return expected;                                                                          \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T compare_exchange_acq_rel_##scope(T* word, same<T> expected, same<T> desired) { \
    publish_##scope();                                                                        \
    __hip_atomic_compare_exchange_strong(word, &expected, desired, __ATOMIC_ACQUIRE,          \
                                         __ATOMIC_ACQUIRE, hip_scope);                        \
    return expected;                                                                          \
  }

CCO_DEVICE void hard_wait() {
#if CCO_HARD_WAITCNT
  __builtin_amdgcn_s_waitcnt(0);
#endif
}

CCO_HIP_SCOPE(system, __HIP_MEMORY_SCOPE_SYSTEM, "")
CCO_HIP_SCOPE(device, __HIP_MEMORY_SCOPE_AGENT, "agent")

CCO_DEVICE void store_pair_published_system(uint64_t* pair, uint64_t first, uint64_t second) {
  store_published_system(pair + 1, second);
  store_published_system(pair, first);
}

#undef CCO_HIP_SCOPE

}  // namespace cco::device
