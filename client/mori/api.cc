// The functions of mori/cco/host.hpp: they find the communicator and decide nothing.
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/mori/comm.h"
#include "client/mori/errors.h"

namespace cco::compat {
namespace {

using mori::cco::ccoComm;

// The communicators that are alive: pointers are checked, and a device copy is found by its
// communicator, which ccoDevCommCopyToDevice() is not told.
class Register {
 public:
  void add(ccoComm* comm) {
    const std::lock_guard lock(mutex_);
    comms_.insert(comm);
  }
  /// False: it was not there.
  bool remove(ccoComm* comm) {
    const std::lock_guard lock(mutex_);
    return comms_.erase(comm) != 0;
  }
  absl::Status check(ccoComm* comm) {
    const std::lock_guard lock(mutex_);
    if (comms_.count(comm) != 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%p is no communicator, or has been destroyed", comm));
  }
  /// The first for which `wanted(comm)`; null: none.
  template <typename Wanted>
  ccoComm* find(Wanted wanted) {
    const std::lock_guard lock(mutex_);
    for (ccoComm* const comm : comms_) {
      if (wanted(*comm)) return comm;
    }
    return nullptr;
  }

 private:
  std::mutex mutex_;
  std::set<ccoComm*> comms_;
};

// Lives as long as the process: communicators are still destroyed by destructors at exit.
Register& living() {
  static Register& living = *new Register;
  return living;
}

}  // namespace
}  // namespace cco::compat

namespace mori::cco {

namespace compat = ::cco::compat;

int ccoGetUniqueId(ccoUniqueId* uniqueId) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::require(uniqueId, "uniqueId"));
    cco_unique_id id;
    CCO_RETURN_IF_ERROR(compat::from_client(cco_unique_id_create(&id)));
    std::memcpy(uniqueId, &id, sizeof id);
    return absl::OkStatus();
  });
}

int ccoCommCreate(const ccoUniqueId& uniqueId, int nRanks, int rank, size_t perRankVmmSize,
                  ccoComm** comm) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::require(comm, "comm"));
    CCO_ASSIGN_OR_RETURN(std::unique_ptr<ccoComm> made,
                         compat::Comm::create(uniqueId, nRanks, rank, perRankVmmSize));
    compat::living().add(made.get());
    *comm = made.release();
    return absl::OkStatus();
  });
}

int ccoCommDestroy(ccoComm* comm) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    if (comm == nullptr) return absl::OkStatus();
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    if (compat::living().remove(comm)) delete comm;
    return absl::OkStatus();
  });
}

int ccoMemAlloc(ccoComm* comm, size_t size, void** ptr) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    CCO_RETURN_IF_ERROR(compat::require(ptr, "ptr"));
    CCO_ASSIGN_OR_RETURN(*ptr, comm->allocate(size));
    return absl::OkStatus();
  });
}

int ccoMemFree(ccoComm* comm, void* ptr) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    return comm->free(ptr);
  });
}

int ccoMemImport(ccoComm* comm, void* externalPtr, size_t size, void** ptr) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    CCO_RETURN_IF_ERROR(compat::require(ptr, "ptr"));
    CCO_ASSIGN_OR_RETURN(*ptr, comm->import(externalPtr, size));
    return absl::OkStatus();
  });
}

int ccoWindowRegister(ccoComm* comm, size_t size, ccoWindow_t* win, void** localPtr) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    absl::Status mine = compat::require(win, "win");
    mine.Update(compat::require(localPtr, "localPtr"));
    CCO_ASSIGN_OR_RETURN(*win, comm->create_window(mine, size, localPtr));
    return absl::OkStatus();
  });
}

int ccoWindowRegister(ccoComm* comm, void* ptr, size_t size, ccoWindow_t* win) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    CCO_ASSIGN_OR_RETURN(*win, comm->register_window(compat::require(win, "win"), ptr, size));
    return absl::OkStatus();
  });
}

int ccoWindowRegister(ccoComm* comm, void* externalPtr, size_t size, ccoWindow_t* win,
                      void** localPtr) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    absl::Status mine = compat::require(win, "win");
    mine.Update(compat::require(localPtr, "localPtr"));
    void* local = nullptr;
    if (mine.ok()) {
      const absl::StatusOr<void*> imported = comm->import(externalPtr, size);
      if (imported.ok()) local = *imported;
      mine = imported.status();
    }
    const absl::StatusOr<ccoWindow_t> made = comm->register_window(mine, local, size);
    if (!made.ok()) {
      CCO_RETURN_IF_ERROR(comm->free(local));
      return made.status();
    }
    *win = *made;
    *localPtr = local;
    return absl::OkStatus();
  });
}

int ccoWindowDeregister(ccoComm* comm, ccoWindow_t win) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    return comm->deregister(win);
  });
}

void* ccoGetPeerPtr(ccoComm* comm, void* localPtr, int pe) {
  void* result = nullptr;
  compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    result = comm->peer_pointer(localPtr, pe);
    if (result != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%p and rank %d: no window of this communicator holds the address, or that rank is not in "
        "the LSA team",
        localPtr, pe));
  });
  return result;
}

int ccoDevCommCreate(ccoComm* comm, const ccoDevCommRequirements* requirements,
                     ccoDevComm* devComm) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    absl::Status mine = compat::require(requirements, "requirements");
    mine.Update(compat::require(devComm, "devComm"));
    CCO_ASSIGN_OR_RETURN(*devComm, comm->create_dev_comm(mine, requirements));
    return absl::OkStatus();
  });
}

int ccoDevCommDestroy(ccoComm* comm, ccoDevComm* devComm) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    if (devComm == nullptr) return absl::OkStatus();
    CCO_RETURN_IF_ERROR(comm->destroy_dev_comm(*devComm));
    *devComm = ccoDevComm{};
    return absl::OkStatus();
  });
}

ccoDevComm* ccoDevCommCopyToDevice(const ccoDevComm* devComm) {
  ccoDevComm* copy = nullptr;
  compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::require(devComm, "devComm"));
    ccoComm* const comm = compat::living().find(
        [&](ccoComm& living) { return living.flat_base() == devComm->native.flat_base; });
    CCO_RETURN_IF_ERROR(compat::require(comm, "the communicator of devComm"));
    CCO_ASSIGN_OR_RETURN(copy, comm->copy_to_device(*devComm));
    return absl::OkStatus();
  });
  return copy;
}

void ccoDevCommFreeDeviceCopy(ccoDevComm* devComm) {
  compat::living().find([&](ccoComm& living) { return living.free_device_copy(devComm); });
}

int ccoBarrierAll(ccoComm* comm) {
  return compat::guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(compat::living().check(comm));
    return comm->barrier();
  });
}

const char* ccoGetLastErrorText() { return compat::last_error_text(); }

}  // namespace mori::cco
