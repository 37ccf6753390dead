#include <cstdio>
#include <cstdlib>

#include "client/base/status_macros.h"

namespace cco {

void assert_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "<2>event=broken_invariant condition=\"%s\" file=%s line=%d\n", condition,
               file, line);
  std::abort();
}

}  // namespace cco
