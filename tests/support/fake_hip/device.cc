// Which devices there are.
#include <fcntl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.h"

namespace fake_hip {
namespace {

int physical(int device) { return visible_devices()[static_cast<size_t>(device)]; }

Result check(const char* function, int device) {
  if (Result injected = injected_failure(function)) return injected;
  return valid_device(device) ? kSuccess : kInvalidDevice;
}

void write_arch(char* prop, size_t offset) {
  const char* arch = std::getenv("FAKE_HIP_ARCH");
  std::snprintf(prop + offset, cco::hip::kArchBytes, "%s",
                arch != nullptr ? arch : "gfx942:sramecc+:xnack-");
}

// As the real one does, once, for the life of the process; and like some, without O_CLOEXEC.
void open_device_files() {
  static const bool opened = [] {
    const char* folder = std::getenv("FAKE_HIP_DEVICE_FILES");
    if (folder == nullptr) return false;
    std::vector<std::string> names{"kfd"};
    for (const int device : visible_devices()) {
      names.push_back("renderD" + std::to_string(128 + device));
    }
    for (const std::string& name : names) {
      if (::open((std::string(folder) + "/" + name).c_str(), O_RDWR | O_CREAT, 0600) < 0) abort();
    }
    return true;
  }();
  (void)opened;
}

}  // namespace

FAKE_HIP_EXPORT Result hipInit(unsigned flags) {
  if (Result injected = injected_failure("hipInit")) return injected;
  if (flags != 0) return kInvalidValue;
  open_device_files();
  return visible_devices().empty() ? kNoDevice : kSuccess;
}

FAKE_HIP_EXPORT Result hipRuntimeGetVersion(int* version) {
  *version = claimed_version();
  return injected_failure("hipRuntimeGetVersion");
}

FAKE_HIP_EXPORT Result hipGetDeviceCount(int* count) {
  if (Result injected = injected_failure("hipGetDeviceCount")) return injected;
  *count = static_cast<int>(visible_devices().size());
  return *count == 0 ? kNoDevice : kSuccess;
}

FAKE_HIP_EXPORT const char* hipGetErrorName(Result error) {
  switch (error) {
    case kSuccess:
      return "hipSuccess";
    case kInvalidValue:
      return "hipErrorInvalidValue";
    case kOutOfMemory:
      return "hipErrorOutOfMemory";
    case kNoDevice:
      return "hipErrorNoDevice";
    case kInvalidDevice:
      return "hipErrorInvalidDevice";
    case kInvalidImage:
      return "hipErrorInvalidImage";
    case kInvalidHandle:
      return "hipErrorInvalidHandle";
    case kNotFound:
      return "hipErrorNotFound";
    case kIllegalAddress:
      return "hipErrorIllegalAddress";
    case kAlreadyRegistered:
      return "hipErrorHostMemoryAlreadyRegistered";
    case kNotRegistered:
      return "hipErrorHostMemoryNotRegistered";
    case kNotSupported:
      return "hipErrorNotSupported";
    default:
      return "hipErrorUnknown";
  }
}

FAKE_HIP_EXPORT Result hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (Result bad = check("hipDeviceGetAttribute", device)) return bad;
  switch (attribute) {
    case cco::hip::kAttributeVmmSupported:
      *value = setting("FAKE_HIP_NO_VMM", 0) == 0;
      return kSuccess;
    case cco::hip::kAttributeMultiprocessorCount:
      *value = 304;
      return kSuccess;
    case cco::hip::kAttributeWallClockKhz:
      *value = 100'000;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

/// Sixteen characters, as Instinct GPUs have: the serial number in hexadecimal.
FAKE_HIP_EXPORT Result hipDeviceGetUuid(cco::vmm::Uuid* uuid, int device) {
  if (Result bad = check("hipDeviceGetUuid", device)) return bad;
  if (setting("FAKE_HIP_NO_SERIAL", 0) != 0) {
    *uuid = {"XX"};
    return kSuccess;
  }
  std::memcpy(uuid->bytes, serial_number(physical(device)).data(), sizeof uuid->bytes);
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipDeviceGetPCIBusId(char* text, int length, int device) {
  if (Result bad = check("hipDeviceGetPCIBusId", device)) return bad;
  if (length < 13) return kInvalidValue;
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", 0x11 + physical(device));
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipDeviceGetName(char* text, int length, int device) {
  if (Result bad = check("hipDeviceGetName", device)) return bad;
  if (length <= 0) return kInvalidValue;
  std::snprintf(text, static_cast<size_t>(length), "Fake Instinct");
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipDeviceTotalMem(size_t* bytes, int device) {
  if (Result bad = check("hipDeviceTotalMem", device)) return bad;
  *bytes = static_cast<size_t>(setting("FAKE_HIP_MEMORY", 1l << 30));
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipDeviceCanAccessPeer(int* can, int device, int peer) {
  if (Result bad = check("hipDeviceCanAccessPeer", device)) return bad;
  if (!valid_device(peer)) return kInvalidDevice;
  *can = device != peer && can_reach(physical(device), physical(peer));
  return kSuccess;
}

/// Writes as many bytes as the real one does, and no more than the name among them.
FAKE_HIP_EXPORT Result hipGetDevicePropertiesR0600(cco::hip::DeviceProp* prop, int device) {
  if (Result bad = check("hipGetDevicePropertiesR0600", device)) return bad;
  std::memset(prop->bytes, 0, 1472);
  write_arch(prop->bytes, cco::hip::kArchOffset);
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipGetDeviceProperties(cco::hip::DeviceProp* prop, int device) {
  if (Result bad = check("hipGetDeviceProperties", device)) return bad;
  std::memset(prop->bytes, 0, 792);
  write_arch(prop->bytes, cco::hip::kArchOffsetOld);
  return kSuccess;
}

}  // namespace fake_hip
