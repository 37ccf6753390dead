// Goal    a program links and runs with libcco_mori.so alone.
// Method  a call that needs no daemon, and one that fails without; the reason comes across.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mori/cco/cco.hpp"

int main() {
  mori::cco::ccoUniqueId first, second;
  mori::cco::ccoComm* comm = nullptr;
  ::setenv("CCO_SOCKET", "/nowhere/memd.sock", 1);
  const bool unique = mori::cco::ccoGetUniqueId(&first) == 0 &&
                      mori::cco::ccoGetUniqueId(&second) == 0 &&
                      std::memcmp(&first, &second, sizeof first) != 0;
  const bool refused = mori::cco::ccoCommCreate(first, 1, 0, 0, &comm) == -1 && comm == nullptr;
  const bool told = std::strstr(mori::cco::ccoGetLastErrorText(), "/nowhere/memd") != nullptr;
  if (unique && refused && told) return 0;
  std::fprintf(stderr, "unique %d, refused %d, told %d: %s\n", unique, refused, told,
               mori::cco::ccoGetLastErrorText());
  return 1;
}
