#include "daemon/config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cco/memd/config/v1/config.pb.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"
#include "daemon/config_tenants.h"

namespace cco::memd {
namespace {

namespace v1 = ::cco::memd::config::v1;

class Errors final : public google::protobuf::io::ErrorCollector {
 public:
  explicit Errors(std::string origin) : origin_(std::move(origin)) {}
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat(origin_, ":", line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string origin_;
  std::string text_;
};

template <typename Integer>
absl::Status in_range(const char* name, Integer value, Integer least, Integer most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it takes ", least, " to ", most));
}

const char* driver_name(DriverKind kind) {
  switch (kind) {
    case DriverKind::kAuto:
      return "auto";
    case DriverKind::kHost:
      return "host";
    case DriverKind::kCuda:
      return "cuda";
    case DriverKind::kHip:
      return "hip";
  }
  return "";
}

absl::StatusOr<uint32_t> parse_mode(const std::string& text) {
  uint32_t mode = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, mode, 8);
  if (error == std::errc() && rest == end && mode <= 0777) return mode;
  return absl::InvalidArgumentError(
      absl::StrCat("socket_mode is '", text, "'; it takes octal digits up to 0777, as \"0660\""));
}

absl::Status read_limits(const v1::Limits& from, Limits* to) {
  constexpr uint32_t kMost = 1'000'000;
#define CCO_LIMIT(field, most)                                                        \
  if (from.has_##field()) {                                                           \
    CCO_RETURN_IF_ERROR(in_range<uint64_t>("limits." #field, from.field(), 1, most)); \
    to->field = from.field();                                                         \
  }
  CCO_LIMIT(sessions, kMost)
  CCO_LIMIT(groups, kMost)
  CCO_LIMIT(ranks_per_group, 1024)
  CCO_LIMIT(windows_per_group, kMost)
  CCO_LIMIT(slabs_per_group, kMost)
  CCO_LIMIT(tickets_per_session, kMost)
  CCO_LIMIT(requests_per_session, kMost)
  CCO_LIMIT(calls_per_session, kMost)
  CCO_LIMIT(leases, kMost)
  CCO_LIMIT(kept_windows, kMost)
  CCO_LIMIT(grants_per_group, kMost)
  CCO_LIMIT(attachments_per_session, kMost)
  CCO_LIMIT(tenant_share_percent, 100)
  to->sessions_per_tenant = static_cast<uint32_t>(to->share(to->sessions));
  CCO_LIMIT(sessions_per_tenant, kMost)
#undef CCO_LIMIT
  to->bytes_per_gpu = from.bytes_per_gpu();
  return absl::OkStatus();
}

absl::StatusOr<Config> read(const v1::Config& from) {
  Config config;
  if (from.has_socket_path()) config.socket_path = from.socket_path();
  CCO_RETURN_IF_ERROR(check_socket_path(config.socket_path));
  if (from.has_socket_mode()) {
    CCO_ASSIGN_OR_RETURN(config.socket_mode, parse_mode(from.socket_mode()));
  }
  config.socket_group = from.socket_group();
  config.operator_group = from.operator_group();
  if (from.has_driver()) {
    CCO_ASSIGN_OR_RETURN(config.driver.kind, parse_driver_kind(from.driver()));
  }
  if (from.host().has_device_count()) config.driver.host_devices = from.host().device_count();
  CCO_RETURN_IF_ERROR(in_range<uint32_t>("host.device_count", config.driver.host_devices, 1, 64));
  config.driver.host_bytes_per_device = from.host().bytes_per_device();
  config.slab_bytes = from.slab_bytes();
  CCO_RETURN_IF_ERROR(in_range<uint64_t>("slab_bytes", config.slab_bytes, 0, uint64_t{1} << 42));
  if (from.has_control_bytes()) config.control_bytes = from.control_bytes();
  CCO_RETURN_IF_ERROR(
      in_range<uint64_t>("control_bytes", config.control_bytes, 64 * 1024, uint64_t{1} << 30));
  if (from.has_default_timeout_ms())
    config.default_timeout = Milliseconds(from.default_timeout_ms());
  CCO_RETURN_IF_ERROR(
      in_range<int64_t>("default_timeout_ms", config.default_timeout.count(), 1, 3'600'000));
  if (from.has_ticket_ms()) config.ticket_lifetime = Milliseconds(from.ticket_ms());
  CCO_RETURN_IF_ERROR(in_range<int64_t>("ticket_ms", config.ticket_lifetime.count(), 1, 60'000));
  config.state_dir = from.state_dir();
  constexpr size_t kMaxStateDirBytes = 90;  // The keeper's socket lies in it.
  if (config.state_dir.size() > kMaxStateDirBytes ||
      (!config.state_dir.empty() && config.state_dir[0] != '/')) {
    return absl::InvalidArgumentError(absl::StrCat("state_dir is '", config.state_dir,
                                                   "'; it takes an absolute path of at most ",
                                                   kMaxStateDirBytes, " bytes, or nothing"));
  }
  if (from.has_keeper_linger_ms()) config.keeper_linger = Milliseconds(from.keeper_linger_ms());
  CCO_RETURN_IF_ERROR(
      in_range<int64_t>("keeper_linger_ms", config.keeper_linger.count(), 0, 86'400'000));
  if (from.has_log_level()) config.log_level = from.log_level();
  if (from.has_allow_unenforced_read_only()) {
    config.allow_unenforced_read_only = from.allow_unenforced_read_only();
  }
  if (from.has_memory_pressure_percent()) {
    config.memory_pressure_percent = from.memory_pressure_percent();
  }
  CCO_RETURN_IF_ERROR(
      in_range<uint32_t>("memory_pressure_percent", config.memory_pressure_percent, 0, 100));
  CCO_RETURN_IF_ERROR(read_limits(from.limits(), &config.limits));
  CCO_ASSIGN_OR_RETURN(config.tenants, read_tenants(from, config.limits, config.control_bytes));
  return config;
}

}  // namespace

absl::StatusOr<Config> parse_config(const std::string& text, const std::string& origin) {
  v1::Config message;
  Errors errors(origin);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  if (!parser.ParseFromString(text, &message)) {
    return absl::InvalidArgumentError(
        absl::StrCat(errors.text(), " The fields are described in config.proto"));
  }
  absl::StatusOr<Config> config = read(message);
  if (config.ok()) return config;
  return absl::Status(config.status().code(),
                      absl::StrCat(origin, ": ", config.status().message()));
}

absl::StatusOr<Config> load_config(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("cannot read the configuration ", path, ": ", std::strerror(errno)));
  return parse_config(text.str(), path);
}

std::string print_config(const Config& config) {
  v1::Config message;
  message.set_socket_path(config.socket_path);
  message.set_socket_mode(absl::StrFormat("%04o", config.socket_mode));
  message.set_socket_group(config.socket_group);
  message.set_operator_group(config.operator_group);
  message.set_driver(driver_name(config.driver.kind));
  message.mutable_host()->set_device_count(config.driver.host_devices);
  message.mutable_host()->set_bytes_per_device(config.driver.host_bytes_per_device);
  message.set_slab_bytes(config.slab_bytes);
  message.set_control_bytes(config.control_bytes);
  message.set_default_timeout_ms(static_cast<uint32_t>(config.default_timeout.count()));
  message.set_ticket_ms(static_cast<uint32_t>(config.ticket_lifetime.count()));
  message.set_state_dir(config.state_dir);
  message.set_keeper_linger_ms(static_cast<uint32_t>(config.keeper_linger.count()));
  message.set_log_level(config.log_level);
  message.set_allow_unenforced_read_only(config.allow_unenforced_read_only);
  message.set_memory_pressure_percent(config.memory_pressure_percent);
  v1::Limits* limits = message.mutable_limits();
  limits->set_sessions(config.limits.sessions);
  limits->set_sessions_per_tenant(config.limits.sessions_per_tenant);
  limits->set_groups(config.limits.groups);
  limits->set_ranks_per_group(config.limits.ranks_per_group);
  limits->set_windows_per_group(config.limits.windows_per_group);
  limits->set_slabs_per_group(config.limits.slabs_per_group);
  limits->set_bytes_per_gpu(config.limits.bytes_per_gpu);
  limits->set_tickets_per_session(config.limits.tickets_per_session);
  limits->set_requests_per_session(config.limits.requests_per_session);
  limits->set_calls_per_session(config.limits.calls_per_session);
  limits->set_leases(config.limits.leases);
  limits->set_kept_windows(config.limits.kept_windows);
  limits->set_grants_per_group(config.limits.grants_per_group);
  limits->set_attachments_per_session(config.limits.attachments_per_session);
  limits->set_tenant_share_percent(config.limits.tenant_share_percent);
  print_tenants(config.tenants, &message);
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

}  // namespace cco::memd
