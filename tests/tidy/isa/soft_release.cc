// Negative control: the release as the compiler writes it by itself. On gfx9, clang 19 to 22 drop
// the wait after the write-back (llvm-project#178316), and the check must see it.
extern "C" __attribute__((global)) void soft_release(unsigned long long* word) {
  if (__builtin_amdgcn_workitem_id_x() == 0) {
    __hip_atomic_store(word, 1ull, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
}
