#include "client/src/c_handles.h"

#include <cstdint>
#include <cstring>

namespace cco::client {

// Lives as long as the process: handles are still destroyed by destructors at exit.
HandleTable& table() {
  static HandleTable& table = *new HandleTable([] {
    uint64_t pattern = 0;
    std::memcpy(&pattern, random_bytes(sizeof pattern).data(), sizeof pattern);
    return pattern;
  }());
  return table;
}

}  // namespace cco::client
