// Goal    client.hpp is C++17 and needs nothing but the shared library.
// Method  this file is compiled as C++17, linked against libcco_client.so alone, and run; owners
//         are moved, and a static one ends after main().
#include <cstring>
#include <type_traits>

#include "cco/client.hpp"

static_assert(!std::is_copy_constructible<cco::Window>::value, "one owner");
static_assert(std::is_nothrow_move_constructible<cco::Group>::value, "movable");

static cco::Client static_client;

int main() {
  if (cco::Client::create({"/tmp/cco-no-such-directory/memd.sock", 100}, &static_client) !=
      CCO_UNAVAILABLE)
    return 1;
  cco::Client moved = std::move(static_client);
  if (moved || static_client) return 2;
  try {
    cco::or_throw(cco_group_check(nullptr));
    return 3;
  } catch (const cco::Error& error) {
    if (error.status() != CCO_INVALID_ARGUMENT || error.rank() != -1) return 4;
    if (std::strstr(error.what(), "is null") == nullptr) return 5;
  }
  return 0;
}
