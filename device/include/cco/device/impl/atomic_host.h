// Host words. Both scopes are the process (or the machine, in shared memory).
#pragma once

namespace cco::device {

#define CCO_HOST_SCOPE(scope)                                                                 \
  template <typename T>                                                                       \
  CCO_DEVICE T load_relaxed_##scope(const T* word) {                                          \
    return __atomic_load_n(word, __ATOMIC_RELAXED);                                           \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T load_acquire_##scope(const T* word) {                                          \
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);                                           \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void acquire_##scope(const T* word) {                                            \
    static_cast<void>(__atomic_load_n(word, __ATOMIC_ACQUIRE));                               \
  }                                                                                           \
  CCO_DEVICE void publish_##scope() {}                                                        \
  template <typename T>                                                                       \
  CCO_DEVICE void store_relaxed_##scope(T* word, same<T> value) {                             \
    __atomic_store_n(word, value, __ATOMIC_RELAXED);                                          \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void store_published_##scope(T* word, same<T> value) {                           \
    __atomic_store_n(word, value, __ATOMIC_RELEASE);                                          \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void store_release_##scope(T* word, same<T> value) {                             \
    __atomic_store_n(word, value, __ATOMIC_RELEASE);                                          \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void add_relaxed_##scope(T* word, same<T> value) {                               \
    __atomic_fetch_add(word, value, __ATOMIC_RELAXED);                                        \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void add_published_##scope(T* word, same<T> value) {                             \
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);                                        \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE void add_release_##scope(T* word, same<T> value) {                               \
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);                                        \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T fetch_add_relaxed_##scope(T* word, same<T> value) {                            \
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);                                 \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T fetch_add_acq_rel_##scope(T* word, same<T> value) {                            \
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);                                 \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T compare_exchange_relaxed_##scope(T* word, same<T> expected, same<T> desired) { \
    __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED,            \
                                __ATOMIC_RELAXED);                                            \
    return expected;                                                                          \
  }                                                                                           \
  template <typename T>                                                                       \
  CCO_DEVICE T compare_exchange_acq_rel_##scope(T* word, same<T> expected, same<T> desired) { \
    __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL,            \
                                __ATOMIC_ACQUIRE);                                            \
    return expected;                                                                          \
  }

CCO_HOST_SCOPE(system)
CCO_HOST_SCOPE(device)

CCO_DEVICE void store_pair_published_system(uint64_t* pair, uint64_t first, uint64_t second) {
  store_published_system(pair + 1, second);
  store_published_system(pair, first);
}

#undef CCO_HOST_SCOPE

}  // namespace cco::device
