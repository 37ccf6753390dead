// PTX words. fence.acquire and fence.release need PTX 8.6: nvcc 12.8 or newer. On sm_90 they become
// CCTL.IVALL alone and MEMBAR alone, where fence.acq_rel is both.
#pragma once

namespace cco::device {

#define CCO_PTX_LOAD(name, order, T, type, reg)           \
  CCO_DEVICE T name(const T* word) {                      \
    T value;                                              \
    asm volatile("ld." order ".global." type " %0, [%1];" \
                 : "=" reg(value)                         \
                 : "l"(word)                              \
                 : "memory");                             \
    return value;                                         \
  }
#define CCO_PTX_STORE(name, order, T, type, reg)                                               \
  CCO_DEVICE void name(T* word, T value) {                                                     \
    asm volatile("st." order ".global." type " [%0], %1;" ::"l"(word), reg(value) : "memory"); \
  }
#define CCO_PTX_ADD(name, order, T, type, reg)                                         \
  CCO_DEVICE void name(T* word, T value) {                                             \
    asm volatile("red." order ".global.add." type " [%0], %1;" ::"l"(word), reg(value) \
                 : "memory");                                                          \
  }
#define CCO_PTX_FETCH_ADD(name, order, T, type, reg)                \
  CCO_DEVICE T name(T* word, T value) {                             \
    T before;                                                       \
    asm volatile("atom." order ".global.add." type " %0, [%1], %2;" \
                 : "=" reg(before)                                  \
                 : "l"(word), reg(value)                            \
                 : "memory");                                       \
    return before;                                                  \
  }
#define CCO_PTX_COMPARE_EXCHANGE(name, order, T, bits, reg)             \
  CCO_DEVICE T name(T* word, T expected, T desired) {                   \
    T before;                                                           \
    asm volatile("atom." order ".global.cas." bits " %0, [%1], %2, %3;" \
                 : "=" reg(before)                                      \
                 : "l"(word), reg(expected), reg(desired)               \
                 : "memory");                                           \
    return before;                                                      \
  }
#define CCO_PTX_WORD(scope, sem, T, type, bits, reg)                                       \
  CCO_PTX_LOAD(load_relaxed_##scope, "relaxed." sem, T, type, reg)                         \
  CCO_PTX_LOAD(load_acquire_##scope, "acquire." sem, T, type, reg)                         \
  CCO_PTX_STORE(store_relaxed_##scope, "relaxed." sem, T, type, reg)                       \
  CCO_PTX_STORE(store_release_##scope, "release." sem, T, type, reg)                       \
  CCO_PTX_STORE(store_published_##scope, "relaxed." sem, T, type, reg)                     \
  CCO_PTX_ADD(add_relaxed_##scope, "relaxed." sem, T, type, reg)                           \
  CCO_PTX_ADD(add_release_##scope, "release." sem, T, type, reg)                           \
  CCO_PTX_ADD(add_published_##scope, "relaxed." sem, T, type, reg)                         \
  CCO_PTX_FETCH_ADD(fetch_add_relaxed_##scope, "relaxed." sem, T, type, reg)               \
  CCO_PTX_FETCH_ADD(fetch_add_acq_rel_##scope, "acq_rel." sem, T, type, reg)               \
  CCO_PTX_COMPARE_EXCHANGE(compare_exchange_relaxed_##scope, "relaxed." sem, T, bits, reg) \
  CCO_PTX_COMPARE_EXCHANGE(compare_exchange_acq_rel_##scope, "acq_rel." sem, T, bits, reg) \
  CCO_DEVICE void acquire_##scope(const T*) { asm volatile("fence.acquire." sem ";" ::: "memory"); }
#define CCO_PTX_SCOPE(scope, sem)                       \
  CCO_PTX_WORD(scope, sem, uint32_t, "u32", "b32", "r") \
  CCO_PTX_WORD(scope, sem, uint64_t, "u64", "b64", "l") \
  CCO_DEVICE void publish_##scope() { asm volatile("fence.release." sem ";" ::: "memory"); }

CCO_PTX_SCOPE(system, "sys")
CCO_PTX_SCOPE(device, "gpu")

CCO_DEVICE void store_pair_published_system(uint64_t* pair, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(pair), "l"(first), "l"(second)
               : "memory");
}

#undef CCO_PTX_SCOPE
#undef CCO_PTX_WORD
#undef CCO_PTX_COMPARE_EXCHANGE
#undef CCO_PTX_FETCH_ADD
#undef CCO_PTX_ADD
#undef CCO_PTX_STORE
#undef CCO_PTX_LOAD

}  // namespace cco::device
