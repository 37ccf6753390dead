// Goal    no text makes the configuration's parser crash, and what it accepts prints as itself.
// Method  parse; if it is good, print, parse and print again: both prints are the same.
#include "client/base/status_macros.h"
#include "daemon/config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const auto config = cco::memd::parse_config(text, "fuzz");
  if (!config.ok()) {
    CCO_ASSERT(!config.status().message().empty());
    return 0;
  }
  const std::string printed = cco::memd::print_config(*config);
  const auto again = cco::memd::parse_config(printed, "printed");
  CCO_ASSERT(again.ok());
  CCO_ASSERT(cco::memd::print_config(*again) == printed);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {cco::memd::print_config(cco::memd::Config()),
          "socket_path: \"/tmp/x.sock\" host { device_count: 4 bytes_per_device: 65536 }",
          "limits { sessions: 1 groups: 2 } ticket_ms: 5 # a comment\n", ""};
}
