// The daemon's interface as the library sees it, for calls that the library would never make.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "client/src/connection.h"
#include "tests/support/patience.h"

namespace cco::test {

using Stub = v1::MemdService::Stub;

inline ::testing::AssertionResult refused(const absl::Status& status, absl::StatusCode expected,
                                          std::initializer_list<std::string> words) {
  const std::string text(status.message());
  if (status.code() != expected) {
    return ::testing::AssertionFailure()
           << status << " instead of " << absl::StatusCodeToString(expected);
  }
  for (const std::string& word : words) {
    if (text.find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "no \"" << word << "\" in: " << text;
    }
  }
  return ::testing::AssertionSuccess();
}

class RawSession {
 public:
  explicit RawSession(const std::string& socket_path) {
    auto opened = Connection::open(socket_path, patience());
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) connection_ = *std::move(opened);
  }
  Connection& connection() { return *connection_; }

  template <typename Request, typename Response>
  absl::Status call(Connection::Method<Request, Response> method, const Request& request,
                    Response* response) {
    return connection_->call(method, request, response, patience());
  }

  static v1::JoinGroupRequest join_request(const std::string& name, uint32_t rank = 0,
                                           uint32_t size = 1) {
    v1::JoinGroupRequest request;
    request.set_request_id(new_request_id());
    request.set_name(name);
    request.set_rank(rank);
    request.set_size(size);
    request.set_gpu_uuid("HOST-0");
    request.set_timeout_ms(10000);
    return request;
  }
  /// Forms a group of this session alone.
  v1::JoinGroupResponse join(const std::string& name) {
    v1::JoinGroupResponse response;
    const absl::Status status = call(&Stub::JoinGroup, join_request(name), &response);
    EXPECT_TRUE(status.ok()) << status;
    return response;
  }

  static v1::CreateWindowRequest window_request(uint64_t group_id, const std::string& name,
                                                uint64_t size_bytes = 4096) {
    v1::CreateWindowRequest request;
    request.set_request_id(new_request_id());
    request.set_group_id(group_id);
    request.set_name(name);
    request.set_size_bytes(size_bytes);
    request.set_placement(v1::PLACEMENT_HEAP);
    return request;
  }
  v1::CreateWindowResponse create_window(uint64_t group_id, const std::string& name) {
    v1::CreateWindowResponse response;
    const absl::Status status =
        call(&Stub::CreateWindow, window_request(group_id, name), &response);
    EXPECT_TRUE(status.ok()) << status;
    return response;
  }
  void leave(uint64_t group_id, uint32_t rank = 0) {
    v1::LeaveGroupRequest request;
    request.set_rank(rank);
    request.set_request_id(new_request_id());
    request.set_group_id(group_id);
    v1::LeaveGroupResponse response;
    const absl::Status status = call(&Stub::LeaveGroup, request, &response);
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  std::unique_ptr<Connection> connection_;
};

}  // namespace cco::test
