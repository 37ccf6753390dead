// Messages from a fuzzer's input: each field by its name, mostly what fits, and now and then not.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cco::fuzz {

/// Bytes, as choices. Past the end all are 0.
class Input {
 public:
  Input(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}
  bool at_end() const { return at_ >= size_; }
  uint8_t byte() { return at_ < size_ ? bytes_[at_++] : 0; }
  size_t below(size_t limit) { return byte() % limit; }
  /// Small, or near a power of two.
  uint64_t number();

 private:
  const uint8_t* bytes_;
  size_t size_;
  size_t at_ = 0;
};

/// What answers have named so far, to anybody.
struct Known {
  std::vector<uint64_t> groups, windows, generations, lease_ids, attachments;
  std::vector<std::string> tickets, offers, tokens;  // Tokens of leases and of grants.
  std::string last_request_id;
  uint64_t requests = 0;

  void learn(const google::protobuf::Message& response);
  std::string ticket(Input& input) const;
};

void fill(google::protobuf::Message* message, Input& input, Known& known);

/// All fields that are set, inner ones too, as text.
void visit(const google::protobuf::Message& message,
           const std::function<void(const std::string& field, const std::string& value)>& see);

}  // namespace cco::fuzz
