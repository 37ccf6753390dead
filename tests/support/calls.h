// Calls of the C interface from a test: what came of them, and from several threads at once.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "cco/client.hpp"

namespace cco::test {

/// A call's status, with what the library says of it on the calling thread.
struct Outcome {
  cco_status status = CCO_OK;
  std::string message;
  int32_t rank = -1;
};
inline Outcome outcome(cco_status status) {
  if (status == CCO_OK) return {};
  return {status, cco_error_message(), cco_error_rank()};
}

inline ::testing::AssertionResult succeeded(const Outcome& outcome) {
  if (outcome.status == CCO_OK) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << cco_status_name(outcome.status) << ": " << outcome.message;
}
inline ::testing::AssertionResult succeeded(cco_status status) {
  return succeeded(outcome(status));
}

/// Failed with this code, and the message holds all of `words`.
inline ::testing::AssertionResult refused(const Outcome& outcome, cco_status expected,
                                          std::initializer_list<std::string> words) {
  if (outcome.status != expected) {
    return ::testing::AssertionFailure() << cco_status_name(outcome.status) << " instead of "
                                         << cco_status_name(expected) << ": " << outcome.message;
  }
  for (const std::string& word : words) {
    if (outcome.message.find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "no \"" << word << "\" in: " << outcome.message;
    }
  }
  return ::testing::AssertionSuccess();
}
inline ::testing::AssertionResult refused(cco_status status, cco_status expected,
                                          std::initializer_list<std::string> words) {
  return refused(outcome(status), expected, words);
}

/// Runs `call(rank)` -> cco_status on a thread for each rank.
template <typename Call>
std::vector<Outcome> on_threads(uint32_t count, Call call) {
  std::vector<Outcome> outcomes(count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = outcome(call(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline ::testing::AssertionResult all_succeeded(const std::vector<Outcome>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].status != CCO_OK) {
      return ::testing::AssertionFailure()
             << "rank " << rank << ": " << cco_status_name(outcomes[rank].status) << ": "
             << outcomes[rank].message;
    }
  }
  return ::testing::AssertionSuccess();
}

/// Forms a group of `size` ranks, all of them threads of this process.
inline std::vector<Group> form_group(const Client& client, const char* name, uint32_t size,
                                     uint32_t timeout_ms = 0) {
  std::vector<Group> groups(size);
  EXPECT_TRUE(all_succeeded(on_threads(size, [&](uint32_t rank) {
    Group::Options options;
    options.rank = rank;
    options.size = size;
    options.name = name;
    options.timeout_ms = timeout_ms;
    return Group::create(client, options, &groups[rank]);
  })));
  return groups;
}

/// One window on every rank of such a group.
inline std::vector<Window> form_window(const std::vector<Group>& groups, const char* name,
                                       const Window::Options& options) {
  std::vector<Window> windows(groups.size());
  EXPECT_TRUE(all_succeeded(on_threads(static_cast<uint32_t>(groups.size()), [&](uint32_t rank) {
    return Window::create(groups[rank], name, options, &windows[rank]);
  })));
  return windows;
}

}  // namespace cco::test
