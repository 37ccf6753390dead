#include "client/src/environment.h"

#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/base/status_macros.h"

namespace cco::client {
namespace {

constexpr size_t kMaxJobBytes = 63;
constexpr uint32_t kMaxNumber = std::numeric_limits<int32_t>::max();

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  // Null: see slurm_local_size().
};

constexpr Launcher kLaunchers[] = {
    {"cco", "CCO_RANK", "CCO_SIZE", "CCO_LOCAL_RANK", "CCO_LOCAL_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

absl::Status wrong(const char* name, std::string_view value, std::string_view takes) {
  return absl::InvalidArgumentError(absl::StrFormat("%s is '%s'; it takes %s", name, value, takes));
}

absl::StatusOr<uint32_t> number(const char* name, const char* value, uint32_t least) {
  uint32_t parsed = 0;
  const bool digits = *value != '\0' && std::string_view(value).find_first_not_of("0123456789") ==
                                            std::string_view::npos;
  if (!digits || !absl::SimpleAtoi(value, &parsed) || parsed < least || parsed > kMaxNumber) {
    return wrong(name, value, absl::StrCat("a decimal number from ", least, " to ", kMaxNumber));
  }
  return parsed;
}

absl::Status require_below(const char* name, uint32_t value, const char* limit_name,
                           uint32_t limit) {
  if (value < limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d but %s is %d: ranks count from 0", name, value, limit_name, limit));
}

// "4(x2),3": tasks of each node of the step, in order; SLURM_NODEID is this node's index.
absl::StatusOr<std::optional<uint32_t>> slurm_local_size(Variables variables) {
  constexpr char kTasks[] = "SLURM_STEP_TASKS_PER_NODE";
  const char* tasks = variables(kTasks);
  if (tasks == nullptr) return std::optional<uint32_t>();
  uint32_t node = 0;
  if (const char* id = variables("SLURM_NODEID"); id != nullptr) {
    CCO_ASSIGN_OR_RETURN(node, number("SLURM_NODEID", id, 0));
  }
  uint64_t nodes_before = 0;
  const std::vector<std::string> parts = absl::StrSplit(tasks, ',');
  for (const std::string& part : parts) {
    const std::vector<std::string> fields = absl::StrSplit(part, "(x");
    uint32_t count = 0;
    uint32_t repeat = 1;
    bool valid = fields.size() <= 2 && absl::SimpleAtoi(fields[0], &count) && count > 0;
    if (valid && fields.size() == 2) {
      const std::string& text = fields[1];
      valid = text.size() > 1 && text.back() == ')' &&
              absl::SimpleAtoi(text.substr(0, text.size() - 1), &repeat) && repeat > 0;
    }
    if (!valid) return wrong(kTasks, tasks, "counts per node such as 4 or 4(x2),3");
    nodes_before += repeat;
    if (node < nodes_before) return std::optional<uint32_t>(count);
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "SLURM_NODEID is %d but SLURM_STEP_TASKS_PER_NODE is '%s': it describes %d nodes", node,
      tasks, nodes_before));
}

absl::StatusOr<std::optional<uint32_t>> local_size(const Launcher& launcher, Variables variables) {
  if (launcher.local_size == nullptr) return slurm_local_size(variables);
  const char* value = variables(launcher.local_size);
  if (value == nullptr) return std::optional<uint32_t>();
  CCO_ASSIGN_OR_RETURN(const uint32_t parsed, number(launcher.local_size, value, 1));
  return std::optional<uint32_t>(parsed);
}

// Join of those variables that are set and not empty; "" unless the first of them is.
std::string joined(Variables variables, std::initializer_list<const char*> names) {
  std::string result;
  for (const char* name : names) {
    const char* value = variables(name);
    if (value == nullptr || *value == '\0') return result;
    absl::StrAppend(&result, result.empty() ? "" : ".", value);
  }
  return result;
}

std::string raw_job(const std::string& launcher, Variables variables) {
  if (launcher == "torchrun") {
    // torchrun's default for the run id is the word "none", the same for every job.
    const std::string run_id = joined(variables, {"TORCHELASTIC_RUN_ID"});
    if (!run_id.empty() && run_id != "none") return run_id;
    return joined(variables, {"MASTER_ADDR", "MASTER_PORT"});
  }
  if (launcher == "openmpi") return joined(variables, {"PMIX_NAMESPACE"});
  if (launcher == "pmi") return joined(variables, {"PMI_JOBID"});
  return joined(variables, {"SLURM_JOB_ID", "SLURM_STEP_ID"});
}

absl::StatusOr<std::string> job_name(const std::string& launcher, Variables variables) {
  if (launcher == "cco") {
    const std::string job = joined(variables, {"CCO_JOB"});
    if (job.size() > kMaxJobBytes) {
      return wrong("CCO_JOB", job, absl::StrCat("at most ", kMaxJobBytes, " bytes"));
    }
    return job;
  }
  const std::string raw = raw_job(launcher, variables);
  if (raw.empty()) return std::string();
  std::string job = absl::StrCat(launcher, "-", raw);
  if (job.size() <= kMaxJobBytes) return job;
  uint64_t hash = 14695981039346656037u;  // FNV-1a: every rank shortens to the same name.
  for (const unsigned char byte : raw) hash = (hash ^ byte) * 1099511628211u;
  return absl::StrFormat("%s-%016x", launcher, hash);
}

absl::StatusOr<Environment> read(const Launcher& launcher, Variables variables) {
  const char* rank = variables(launcher.rank);
  const char* size = variables(launcher.size);
  if (rank == nullptr || size == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is set but %s is not: set both or neither",
                        rank != nullptr ? launcher.rank : launcher.size,
                        rank != nullptr ? launcher.size : launcher.rank));
  }
  Environment result;
  result.launcher = launcher.name;
  CCO_ASSIGN_OR_RETURN(result.rank, number(launcher.rank, rank, 0));
  CCO_ASSIGN_OR_RETURN(result.size, number(launcher.size, size, 1));
  CCO_RETURN_IF_ERROR(require_below(launcher.rank, result.rank, launcher.size, result.size));
  result.local_rank = result.rank;
  result.local_size = result.size;
  CCO_ASSIGN_OR_RETURN(const std::optional<uint32_t> of_node, local_size(launcher, variables));
  if (const char* local = variables(launcher.local_rank); local != nullptr) {
    CCO_ASSIGN_OR_RETURN(result.local_rank, number(launcher.local_rank, local, 0));
    const char* limit_name =
        launcher.local_size != nullptr ? launcher.local_size : "SLURM_STEP_TASKS_PER_NODE";
    result.local_size = of_node.value_or(result.size);
    CCO_RETURN_IF_ERROR(require_below(launcher.local_rank, result.local_rank,
                                      of_node.has_value() ? limit_name : launcher.size,
                                      result.local_size));
  }
  CCO_ASSIGN_OR_RETURN(result.job, job_name(result.launcher, variables));
  return result;
}

}  // namespace

absl::StatusOr<Environment> read_environment(Variables variables) {
  std::string tried;
  for (const Launcher& launcher : kLaunchers) {
    if (variables(launcher.rank) != nullptr || variables(launcher.size) != nullptr) {
      return read(launcher, variables);
    }
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", launcher.rank);
  }
  return absl::NotFoundError(
      absl::StrCat("no launcher's variables are set (looked for ", tried,
                   "): give rank and size, or start with ccoctl run, torchrun, mpirun or srun"));
}

absl::StatusOr<Environment> read_environment() {
  return read_environment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace cco::client
