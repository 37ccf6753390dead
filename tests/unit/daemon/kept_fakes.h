// A store and a vault that a test can look into and break.
#pragma once

#include <fcntl.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/ports/fd_vault.h"
#include "daemon/ports/state_store.h"

namespace cco::memd {

class MemoryStore final : public StateStore {
 public:
  absl::StatusOr<std::vector<Record>> load() override {
    std::vector<Record> all;
    for (const auto& [key, body] : records) all.push_back({key.first, key.second, body});
    return all;
  }
  absl::Status commit(const std::vector<RecordChange>& changes) override {
    if (!failure.ok()) return failure;
    ++commits;
    for (const RecordChange& change : changes) {
      records.erase({change.kind, change.key});
      if (change.body.has_value()) records[{change.kind, change.key}] = *change.body;
    }
    return absl::OkStatus();
  }
  size_t count(RecordKind kind) const {
    size_t found = 0;
    for (const auto& [key, body] : records) found += key.first == kind ? 1 : 0;
    return found;
  }

  std::map<std::pair<RecordKind, std::string>, std::string> records;
  absl::Status failure;
  int commits = 0;
};

class MemoryVault final : public FdVault {
 public:
  absl::StatusOr<std::map<std::string, UniqueFd>> take_over() override {
    std::map<std::string, UniqueFd> copies;
    for (const auto& [name, fd] : fds) copies.emplace(name, duplicate(fd));
    return copies;
  }
  absl::Status put(const std::string& name, BorrowedFd fd) override {
    if (!failure.ok()) return failure;
    fds.emplace(name, duplicate(fd));
    return absl::OkStatus();
  }
  absl::Status remove(const std::string& name) override {
    fds.erase(name);
    return absl::OkStatus();
  }

  absl::Status hold_for(std::chrono::milliseconds keep) override {
    if (!failure.ok()) return failure;
    held_for.push_back(keep);
    return absl::OkStatus();
  }

  std::map<std::string, UniqueFd> fds;
  std::vector<std::chrono::milliseconds> held_for;  // All that was said.
  absl::Status failure;

 private:
  static UniqueFd duplicate(BorrowedFd fd) {
    return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  }
};

}  // namespace cco::memd
