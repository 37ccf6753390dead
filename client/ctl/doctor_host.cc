// Checks of what GPUs and network adapters ask of the machine: kernel options, BARs, locked memory.
#include <fcntl.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/ctl/doctor.h"
#include "client/ctl/table.h"

namespace cco::ctl {
namespace {

namespace fs = std::filesystem;

constexpr char kAmd[] = "0x1002", kNvidia[] = "0x10de";

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string read_gzip(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "";
  google::protobuf::io::FileInputStream file(fd.get());
  google::protobuf::io::GzipInputStream unpacked(&file);
  std::string text;
  const void* data = nullptr;
  for (int size = 0; unpacked.Next(&data, &size);) {
    text.append(static_cast<const char*>(data), static_cast<size_t>(size));
  }
  return text;
}

// Display controllers and accelerators of that vendor.
size_t count_gpus(const std::string& root, const std::string& vendor) {
  size_t count = 0;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(root + "/sys/bus/pci/devices", error)) {
    const std::string type = read_text(entry.path() / "class");
    const bool is_gpu = absl::StartsWith(type, "0x03") || absl::StartsWith(type, "0x12");
    count += is_gpu && absl::StartsWith(read_text(entry.path() / "vendor"), vendor) ? 1 : 0;
  }
  return count;
}

// The kernel's configuration, and where it was found; empty: nowhere.
struct KernelConfig {
  std::string path;
  std::string text;
};
KernelConfig find_kernel_config(const HostPaths& host) {
  const std::string packed = host.root + "/proc/config.gz";
  if (std::string text = read_gzip(packed); !text.empty()) return {packed, std::move(text)};
  for (const std::string& path :
       {absl::StrCat(host.root, "/boot/config-", host.release),
        absl::StrCat(host.root, "/lib/modules/", host.release, "/config")}) {
    if (std::string text = read_text(path); !text.empty()) return {path, std::move(text)};
  }
  return {};
}

// "y", "m", or empty: not set.
std::string option_value(const std::string& config, const std::string& option) {
  for (absl::string_view line : absl::StrSplit(config, '\n')) {
    if (absl::ConsumePrefix(&line, option + "=")) return std::string(line);
  }
  return "";
}

void check_kernel_options(const HostPaths& host, report::Doctor* doctor) {
  struct Option {
    const char* name;
    const char* without;
  };
  static constexpr Option kOptions[] = {
      {"CONFIG_DMABUF_MOVE_NOTIFY", "adapters reach GPU memory only where it is pinned"},
      {"CONFIG_PCI_P2PDMA", "no device reaches another's memory over PCIe"},
      {"CONFIG_HSA_AMD_P2P", "GPUs without an xGMI link do not reach each other's memory"},
  };
  const bool has_amd = count_gpus(host.root, kAmd) > 0;
  if (!has_amd && count_gpus(host.root, kNvidia) == 0) {
    return add_check(doctor, "kernel options", report::VERDICT_OK,
                     "no GPU on the PCI bus: none is needed");
  }
  const KernelConfig config = find_kernel_config(host);
  for (const Option& option : kOptions) {
    if (!has_amd && absl::StartsWith(option.name, "CONFIG_HSA_AMD")) continue;
    if (config.text.empty()) {
      add_check(doctor, option.name, report::VERDICT_UNKNOWN,
                absl::StrCat("neither ", host.root, "/proc/config.gz nor ", host.root,
                             "/boot/config-", host.release, " can be read"),
                "the trials of peer access below decide");
      continue;
    }
    const std::string value = option_value(config.text, option.name);
    const std::string detail = absl::StrCat(value.empty() ? "not set" : value, " in ", config.path);
    if (!value.empty()) {
      add_check(doctor, option.name, report::VERDICT_OK, detail);
    } else if (has_amd) {
      add_check(doctor, option.name, report::VERDICT_BAD, detail,
                absl::StrCat(option.without, ": take a kernel that has it"));
    } else {  // NVIDIA's module has ways of its own.
      add_check(doctor, option.name, report::VERDICT_UNKNOWN, detail,
                absl::StrCat("where the driver relies on it, ", option.without));
    }
  }
}

// Bytes of the largest region; none: the file cannot be read.
std::optional<uint64_t> largest_bar(const std::string& resource) {
  std::optional<uint64_t> largest;
  for (absl::string_view line : absl::StrSplit(read_text(resource), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t first = 0, last = 0;
    if (words.size() < 2 || !absl::SimpleHexAtoi(words[0], &first) ||
        !absl::SimpleHexAtoi(words[1], &last)) {
      return std::nullopt;
    }
    largest = std::max(largest.value_or(0), last > first ? last - first + 1 : 0);
  }
  return largest;
}

}  // namespace

HostPaths this_host() {
  utsname names{};
  ::uname(&names);
  return {"", names.release};
}

void check_host(const HostPaths& host, uint64_t memlock_bytes, report::Doctor* doctor) {
  check_kernel_options(host, doctor);
  std::error_code error;
  const bool has_adapters = !fs::is_empty(host.root + "/sys/class/infiniband", error) && !error;
  const bool is_bounded = memlock_bytes != RLIM_INFINITY;
  const std::string limit = is_bounded ? human_bytes(memlock_bytes) : "unlimited";
  if (has_adapters && is_bounded) {
    // Nothing here registers memory with an adapter yet.
    add_check(doctor, "locked memory", report::VERDICT_UNKNOWN,
              absl::StrCat("soft ", limit, "; RDMA pins what it registers"), "ulimit -l unlimited");
  } else {
    add_check(doctor, "locked memory", report::VERDICT_OK,
              absl::StrCat("soft ", limit,
                           has_adapters ? "" : "; no RDMA adapter, and the heap locks none"));
  }
  if (count_gpus(host.root, kNvidia) == 0) return;
  const std::string socket = host.root + "/run/nvidia-persistenced/socket";
  if (fs::exists(socket, error)) {
    add_check(doctor, "persistence", report::VERDICT_OK, "nvidia-persistenced runs");
  } else {
    add_check(
        doctor, "persistence", report::VERDICT_UNKNOWN, absl::StrCat("no ", socket),
        "nvidia-smi -q shows the mode; without it a GPU that nobody uses loses its state, and "
        "the next start takes seconds");
  }
}

void check_bars(const HostPaths& host, const v1::GetNodeResponse& node, report::Doctor* doctor) {
  for (const v1::Gpu& gpu : node.gpus()) {
    if (gpu.pci_bus_id().empty()) continue;
    const std::string name = absl::StrCat("BAR of ", gpu.uuid());
    const std::string path = absl::StrCat(host.root, "/sys/bus/pci/devices/",
                                          absl::AsciiStrToLower(gpu.pci_bus_id()), "/resource");
    const std::optional<uint64_t> bar = largest_bar(path);
    if (!bar.has_value()) {
      add_check(doctor, name, report::VERDICT_UNKNOWN, absl::StrCat(path, " cannot be read"),
                "lspci -vv shows the sizes of its regions");
      continue;
    }
    const std::string detail =
        absl::StrCat(human_bytes(*bar), ", of ", human_bytes(gpu.total_bytes()), " of memory");
    if (*bar >= gpu.total_bytes()) {
      add_check(doctor, name, report::VERDICT_OK, detail);
    } else {
      add_check(doctor, name, report::VERDICT_BAD, detail,
                "over PCIe no more is reached: turn on large or resizable BARs, and decoding above "
                "4 GiB, in the firmware");
    }
  }
}

}  // namespace cco::ctl
