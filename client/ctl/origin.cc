#include "client/ctl/origin.h"

#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <string>
#include <thread>

namespace cco {

extern const char kCommit[];  // In a file that every build writes anew: commit.cmake.

namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace

report::v1::Origin this_program(int argc, char** argv) {
  report::v1::Origin origin;
  origin.set_version(CCO_VERSION_TEXT);
  origin.set_commit(kCommit);
  for (int i = 0; i < argc; ++i) {
    *origin.mutable_command_line() += (i > 0 ? " " : "") + std::string(argv[i]);
  }
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
  origin.set_date(date);
  utsname system{};
  ::uname(&system);
  origin.set_machine(processor_name() + ", " + std::to_string(std::thread::hardware_concurrency()) +
                     " cores, Linux " + system.release);
  return origin;
}

}  // namespace cco
