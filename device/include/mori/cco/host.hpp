// What the host calls: libcco_mori.
//
// Results are 0, or -1 with the reason in ccoGetLastErrorText(). Device pointers are those of the
// GPU that the calling thread has made current when it creates the communicator; on the `host`
// driver they are ordinary addresses. The daemon is found as by cco_client_create().
//
// Calls of one communicator may come from several threads, but for the collective ones (C): every
// rank makes those in the same order, one at a time. A collective call that waits for a rank for
// five minutes (ccoBarrierAll: an hour) fails, and one that waits for a lost rank fails at once. A
// rank whose arguments make no sense takes part: all ranks get -1, and its number and reason.
#pragma once

#include "mori/cco/types.hpp"

namespace mori {
namespace cco {

struct ccoComm;

#pragma GCC visibility push(default)

/// A fresh secret by which ranks find each other: one rank makes it and gives it to the others.
int ccoGetUniqueId(ccoUniqueId* uniqueId);

/// (C) Attaches this rank. perRankVmmSize: address space for each rank's memory, rounded up to
/// 4 GiB; 0: the largest GPU's memory. The device is the calling thread's current one; where none
/// is current, or on `host`, the local rank's.
int ccoCommCreate(const ccoUniqueId& uniqueId, int nRanks, int rank, size_t perRankVmmSize,
                  ccoComm** comm);

/// Ends windows, memory and device communicators that are left, too. Null is allowed. Kernels must
/// have ended.
int ccoCommDestroy(ccoComm* comm);

/// Memory of this rank alone, not zeroed. Size 0 gives a null pointer and 0. It can become a
/// window later.
int ccoMemAlloc(ccoComm* comm, size_t size, void** ptr);

/// Of ccoMemAlloc(), ccoMemImport(), or as localPtr of ccoWindowRegister(). Null is allowed. While
/// a window uses it, the memory lives on until ccoWindowDeregister().
int ccoMemFree(ccoComm* comm, void* ptr);

/// A second address for `size` bytes of memory that somebody else allocated with the driver's
/// virtual memory management (on `host`: a shared mapping of a memfd whose descriptor is open).
/// The memory lives until the last of both owners has gone.
int ccoMemImport(ccoComm* comm, void* externalPtr, size_t size, void** ptr);

/// (C) A window of new memory, made by the daemon. `*localPtr` is this rank's copy; it ends with
/// ccoMemFree(), after ccoWindowDeregister(), or with the communicator.
int ccoWindowRegister(ccoComm* comm, size_t size, ccoWindow_t* win, void** localPtr);

/// (C) A window of the first `size` bytes of `ptr`, which is as returned by ccoMemAlloc(),
/// ccoMemImport() or as localPtr of a window that has ended. The same size on every rank.
int ccoWindowRegister(ccoComm* comm, void* ptr, size_t size, ccoWindow_t* win);

/// (C) ccoMemImport(), then the above.
int ccoWindowRegister(ccoComm* comm, void* externalPtr, size_t size, ccoWindow_t* win,
                      void** localPtr);

/// Kernels that use the window must have ended.
int ccoWindowDeregister(ccoComm* comm, ccoWindow_t win);

/// World rank `pe`'s counterpart of an address in one of this rank's windows. Null outside of
/// windows and of the LSA team.
void* ccoGetPeerPtr(ccoComm* comm, void* localPtr, int pe);

/// (C) For kernels, by value; `*devComm` is on the host.
int ccoDevCommCreate(ccoComm* comm, const ccoDevCommRequirements* requirements,
                     ccoDevComm* devComm);

/// Kernels that use it must have ended. Null is allowed.
int ccoDevCommDestroy(ccoComm* comm, ccoDevComm* devComm);

/// The struct in device memory, for kernels that take a pointer; null on failure. It ends with
/// ccoDevCommFreeDeviceCopy() or with the communicator.
ccoDevComm* ccoDevCommCopyToDevice(const ccoDevComm* devComm);
void ccoDevCommFreeDeviceCopy(ccoDevComm* devComm);

/// (C) Waits for all ranks, not for kernels.
int ccoBarrierAll(ccoComm* comm);

/// An addition of ours: the reason for this thread's last failure; "" if there was none. Never
/// null; valid until this thread's next call.
const char* ccoGetLastErrorText();

#pragma GCC visibility pop

}  // namespace cco
}  // namespace mori
