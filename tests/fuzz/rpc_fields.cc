#include "tests/fuzz/rpc_fields.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cco::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

template <typename Value>
Value one_of(const std::vector<Value>& values, Input& input, const Value& otherwise) {
  const size_t at = input.below(values.size() + 1);
  return at == values.size() ? otherwise : values[at];
}

uint64_t number_for(const std::string& field, Input& input, const Known& known) {
  const auto choose = [&](std::vector<uint64_t> values) {
    return input.below(16) == 0 ? input.number() : values[input.below(values.size())];
  };
  if (input.below(32) == 0) return input.number();
  if (field == "group_id") return one_of(known.groups, input, uint64_t{1});
  if (field == "window_id") return one_of(known.windows, input, uint64_t{1});
  if (field == "generation") return one_of(known.generations, input, uint64_t{1});
  if (field == "rank" || field == "peer" || field == "sequence") return choose({0, 0, 1, 2});
  if (field == "size") return choose({1, 1, 2, 2, 3});
  if (field == "lsa_size") return choose({0, 0, 0, 1, 2});
  if (field == "slab_index") return choose({0, 0, 1, 2});
  if (field == "slot_bytes") return choose({0, 0, uint64_t{4} << 30});
  if (field == "size_bytes") return choose({1, 256, 4096, 40960, 65536, 131072});
  if (field == "allocation_bytes") return choose({65536, 65536, 131072});
  if (field == "allocation_offset") return choose({0, 0, 16, 65536});
  if (field == "alignment_bytes") return choose({0, 0, 256, 131072});
  if (field == "lease_id") return one_of(known.lease_ids, input, uint64_t{1});
  if (field == "bytes_per_gpu") return choose({65536, 131072, 1 << 20});
  if (field == "ttl_ms") return choose({1000, 60000, 2'592'000'000});
  if (field == "wait_for_memory_ms") return choose({0, 0, 1000});
  if (field == "timeout_ms") return choose({0, 1000, 30000});
  if (field == "page_size") return choose({0, 1, 2, 1000});
  if (field == "placement") return choose({1, 1, 1, 2, 3});
  if (field == "access") return choose({1, 2});
  if (field == "keep_ms") return choose({0, 1, 60000});
  if (field == "attachment_id") {
    return input.below(4) != 0 ? 0 : one_of(known.attachments, input, uint64_t{1});
  }
  return input.number();
}

std::string text_for(const std::string& field, Input& input, Known& known) {
  if (field == "request_id") {
    const size_t how = input.below(16);
    if (how == 0) return std::string(input.below(20), 'r');
    if (how == 1) return known.last_request_id;
    const std::string number = absl::StrCat(++known.requests);
    return known.last_request_id = number + std::string(16 - number.size(), '.');
  }
  if (field == "offer") return one_of(known.offers, input, std::string("none"));
  if (field == "unique_id") return input.below(4) == 0 ? std::string(input.below(40), 'u') : "";
  if (field == "lease") {
    return input.below(4) != 0 ? "" : one_of(known.tokens, input, std::string("none"));
  }
  if (field == "cgroup") return input.below(2) == 0 ? "" : "/jobs";
  if (field == "gpu_uuid" || field == "gpu_uuids")
    return absl::StrCat("TOLD-", input.below(16) == 0 ? 9 : input.below(2));
  if (field == "transport") return input.below(2) == 0 ? "lsa" : "gda";
  if (field == "token") return one_of(known.tokens, input, std::string("none"));
  if (field == "tenant") {
    static const std::vector<std::string> kTenants{"", "team", "uid-1000"};
    return one_of(kTenants, input, std::string("nobody"));
  }
  if (field == "page_token") return input.below(2) == 0 ? "" : absl::StrCat(input.number());
  if (field == "name") {
    static const std::vector<std::string> kNames{"a", "b", "a", "b", "", "ü€", "x\ny"};
    return one_of(kNames, input, std::string(100 + input.below(60), 'n'));
  }
  // Longer than what is kept, with a character across any limit.
  std::string text(input.below(3), 'a');
  for (size_t count = input.below(2) * 400; count > 0; --count) text += "€";
  if (field == "problem" && !text.empty()) text += "\xff\x1b";  // Bytes, and not text.
  return text;
}

void fill_field(Message* message, const FieldDescriptor* field, Input& input, Known& known) {
  const Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return fill(field->is_repeated() ? reflection.AddMessage(message, field)
                                       : reflection.MutableMessage(message, field),
                  input, known);
    case FieldDescriptor::CPPTYPE_STRING:
      if (field->is_repeated()) {
        return reflection.AddString(message, field, text_for(field->name(), input, known));
      }
      return reflection.SetString(message, field, text_for(field->name(), input, known));
    default:
      break;
  }
  if (field->is_repeated()) return;  // No request has numbers by the dozen.
  const uint64_t number = number_for(field->name(), input, known);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(message, field, number % 2 == 1);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(message, field, static_cast<int>(number));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(message, field, static_cast<int32_t>(number));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(message, field, static_cast<uint32_t>(number));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(message, field, static_cast<int64_t>(number));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(message, field, number);
    default:
      return;
  }
}

std::string text_of(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(reflection.GetUInt32(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(reflection.GetUInt64(message, field));
    default:
      return "";
  }
}

}  // namespace

uint64_t Input::number() {
  const uint8_t how = byte();
  if (how < 64) return how;
  return (uint64_t{1} << (how % 64)) - below(3);
}

std::string Known::ticket(Input& input) const {
  return one_of(tickets, input, std::string("none"));
}

void Known::learn(const Message& response) {
  visit(response, [this](const std::string& field, const std::string& value) {
    if (field == "group_id") groups.push_back(std::stoull(value));
    if (field == "window_id") windows.push_back(std::stoull(value));
    if (field == "lease_id" && value != "0") lease_ids.push_back(std::stoull(value));
    if (field == "generation") generations.push_back(std::stoull(value));
    if (field == "attachment_id") attachments.push_back(std::stoull(value));
    if (field == "token") tokens.push_back(value);
    if (absl::EndsWith(field, "ticket") && !value.empty()) tickets.push_back(value);
  });
}

void fill(Message* message, Input& input, Known& known) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (input.below(32) == 0) continue;
    for (size_t count = field->is_repeated() ? input.below(3) : 1; count > 0; --count) {
      fill_field(message, field, input, known);
    }
  }
}

void visit(const Message& message,
           const std::function<void(const std::string& field, const std::string& value)>& see) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field->is_repeated()) see(field->name(), text_of(message, field));
      continue;
    }
    if (!field->is_repeated()) {
      visit(reflection.GetMessage(message, field), see);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      visit(reflection.GetRepeatedMessage(message, field, i), see);
    }
  }
}

}  // namespace cco::fuzz
