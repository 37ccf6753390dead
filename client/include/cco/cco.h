/* libcco_client: the stable C interface to cco-memd. C++ users take cco/client.hpp; every binding
 * sits on this file.
 *
 * Handles. All handles are opaque tokens, checked on every call: null, freed and foreign ones give
 * CCO_INVALID_ARGUMENT, never a crash. Every destroy function takes null and freed handles, may be
 * called in any order and never fails. A handle may be used from any thread; a call that is running
 * in another thread keeps what it uses until it ends. Calls matched by order (barriers,
 * communicators, unnamed windows) are made one at a time by a rank: a second one at the same time
 * gets CCO_FAILED_PRECONDITION.
 *
 * Errors. A function that returns something other than CCO_OK has changed nothing, has left its
 * outputs untouched, and has put a text that names the cause and the next step into
 * cco_error_message() of the calling thread.
 *
 * Time. Every function ends: local calls within the client's timeout_ms plus a second, collective
 * ones within their own. Time-outs are in milliseconds.
 *
 * Restarts. A cco-memd that keeps its state (state_dir in its configuration) may end and start
 * again under its clients: kernels and mappings are not affected, and calls wait for it within
 * their time-outs. Without state_dir its end is the end of its sessions: make new clients.
 *
 * Every function that talks to the daemon may also return
 *   CCO_UNAVAILABLE         cco-memd has gone, or is stopping; with state_dir: it was not back in
 *                           time, call again, or it has restarted without this session and groups
 *                           and windows have ended; or the GPU is drained. The message says which
 *   CCO_DEADLINE_EXCEEDED   cco-memd has not answered in time; it may be stopped
 *   CCO_FAILED_PRECONDITION this process was forked from one that had made a client. Such a child
 *                           can use neither the parent's handles nor make a client (gRPC and GPU
 *                           contexts do not survive a fork): fork first, or exec. Its destroy
 *                           functions do nothing, and it keeps no session alive.
 *   CCO_RESOURCE_EXHAUSTED  a limit of the daemon or of this process; the message names it
 * and every collective one CCO_ABORTED: a rank is lost, somebody called cco_group_abort(), or an
 * operator took a GPU of the group out of service; see cco_error_rank(). */
#ifndef CCO_CCO_H_
#define CCO_CCO_H_

#include <stdint.h>

#include "cco/device/abi.h"
#include "cco/device/abi_gda.h"
#include "cco/device/abi_sdma.h"

#if defined(__GNUC__)
#define CCO_API __attribute__((visibility("default")))
#else
#define CCO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define CCO_VERSION_MAJOR 0
#define CCO_VERSION_MINOR 1
#define CCO_VERSION_PATCH 0

/* The canonical gRPC codes. */
typedef enum cco_status {
  CCO_OK = 0,
  CCO_CANCELLED = 1,
  CCO_UNKNOWN = 2,
  CCO_INVALID_ARGUMENT = 3,
  CCO_DEADLINE_EXCEEDED = 4,
  CCO_NOT_FOUND = 5,
  CCO_ALREADY_EXISTS = 6,
  CCO_PERMISSION_DENIED = 7,
  CCO_RESOURCE_EXHAUSTED = 8,
  CCO_FAILED_PRECONDITION = 9,
  CCO_ABORTED = 10,
  CCO_OUT_OF_RANGE = 11,
  CCO_UNIMPLEMENTED = 12,
  CCO_INTERNAL = 13,
  CCO_UNAVAILABLE = 14,
  CCO_DATA_LOSS = 15,
  CCO_UNAUTHENTICATED = 16
} cco_status;

typedef struct cco_client cco_client; /* this process's session with the node's daemon */
typedef struct cco_group cco_group;   /* one rank's membership in a group */
typedef struct cco_window cco_window; /* one rank's use of a window */
typedef struct cco_comm cco_comm;     /* one rank's use of a device communicator */
/* this process's use of a window that another tenant has granted */
typedef struct cco_attachment cco_attachment;
typedef struct cco_memory cco_memory; /* device memory of this process alone */

/* ---- Errors and version ---------------------------------------------------------------------- */

/* Text of this thread's last failure; "" if there was none. Never null; valid until this thread's
 * next call. */
CCO_API const char* cco_error_message(void);
/* The rank that this thread's last failure is about: lost, missing, or the first to disagree. -1:
 * none. */
CCO_API int32_t cco_error_rank(void);
/* "CCO_OK" and so on; "CCO_UNKNOWN" for other values. */
CCO_API const char* cco_status_name(cco_status status);
/* Of the library at run time: major * 10000 + minor * 100 + patch. */
CCO_API uint32_t cco_version(void);

/* ---- Client ---------------------------------------------------------------------------------- */

typedef struct cco_client_options {
  uint32_t struct_size;    /* sizeof(cco_client_options) of the caller */
  uint32_t timeout_ms;     /* for calls that wait for no other rank; 0: 5000 */
  const char* socket_path; /* null: $CCO_SOCKET, else /run/cco/memd.sock */
} cco_client_options;

/* Attaches this process to the node's daemon and opens the GPU driver that the daemon uses.
 * `options` may be null. One client is enough for a process; several are independent sessions.
 *
 * CCO_INVALID_ARGUMENT   the socket path does not fit, or $CCO_SOCKET is set and empty
 * CCO_UNAVAILABLE        nobody listens there
 * CCO_PERMISSION_DENIED  this user may not connect
 * CCO_FAILED_PRECONDITION  this process cannot open the daemon's GPU driver */
CCO_API cco_status cco_client_create(const cco_client_options* options, cco_client** client);

/* Ends the session: its groups, windows and communicators with it. */
CCO_API void cco_client_destroy(cco_client* client);

typedef struct cco_client_info {
  uint32_t struct_size;    /* in: sizeof(cco_client_info) of the caller */
  uint32_t gpu_count;      /* that this process can see */
  uint64_t incarnation;    /* of the daemon */
  char daemon_version[32]; /* "0.1.0" */
  char driver[16];         /* "host", "cuda", "hip" */
  char driver_version[80]; /* of the library below it, for people */
} cco_client_info;
CCO_API cco_status cco_client_get_info(cco_client* client, cco_client_info* info);

typedef struct cco_gpu_info {
  uint32_t struct_size; /* in: sizeof(cco_gpu_info) of the caller */
  int32_t device;       /* this process's ordinal */
  uint64_t total_bytes;
  uint64_t granularity_bytes; /* of slabs */
  char uuid[64];              /* names the GPU between processes */
  char pci_bus_id[32];        /* empty on host */
  char name[96];
  char arch[32]; /* "sm_90", "gfx942", "host" */
} cco_gpu_info;
/* CCO_NOT_FOUND: no such device in this process. */
CCO_API cco_status cco_client_get_gpu(cco_client* client, int32_t device, cco_gpu_info* info);

/* ---- Groups ---------------------------------------------------------------------------------- */

typedef struct cco_unique_id {
  unsigned char bytes[128];
} cco_unique_id;
/* A fresh secret by which ranks find each other: one rank makes it and gives it to the others.
 * Needs no daemon. */
CCO_API cco_status cco_unique_id_create(cco_unique_id* id);

#define CCO_RANK_FROM_ENVIRONMENT 0xffffffffu
#define CCO_DEVICE_BY_LOCAL_RANK (-1)
#define CCO_DEVICE_CURRENT (-2)

typedef struct cco_environment {
  uint32_t struct_size; /* in: sizeof(cco_environment) of the caller */
  uint32_t rank;
  uint32_t size;
  uint32_t local_rank; /* on this node; rank, if the launcher does not say */
  uint32_t local_size; /* size, if the launcher does not say */
  char launcher[16];   /* "cco", "torchrun", "openmpi", "pmi", "slurm" */
  char job[64];        /* names this job; empty if the launcher gives it no name */
} cco_environment;
/* What the launcher says of this process. `job` can be a group's name: CCO_JOB as it is, else
 * "<launcher>-<id>", the id hashed if it is too long. The first of these whose variables are set:
 *   cco       CCO_RANK CCO_SIZE [CCO_LOCAL_RANK CCO_LOCAL_SIZE CCO_JOB]
 *   torchrun  RANK WORLD_SIZE [LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RUN_ID, or MASTER_ADDR and
 *             MASTER_PORT]
 *   openmpi   OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE [OMPI_COMM_WORLD_LOCAL_RANK _LOCAL_SIZE,
 *             PMIX_NAMESPACE]
 *   pmi       PMI_RANK PMI_SIZE [MPI_LOCALRANKID MPI_LOCALNRANKS, PMI_JOBID]
 *   slurm     SLURM_PROCID SLURM_NTASKS [SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE with
 *             SLURM_NODEID, SLURM_JOB_ID SLURM_STEP_ID]
 *
 * CCO_NOT_FOUND         no launcher's variables are set
 * CCO_INVALID_ARGUMENT  they are set and make no sense: one is missing, no number, rank >= size */
CCO_API cco_status cco_environment_get(cco_environment* environment);

/* Rank, size and, if neither name nor unique_id is given, the name come from cco_environment_get()
 * with CCO_RANK_FROM_ENVIRONMENT. With CCO_DEVICE_BY_LOCAL_RANK the device is the local rank, or
 * the rank without a launcher, modulo the number of devices. With CCO_DEVICE_CURRENT it is the one
 * that is current for the calling thread: with HIP device 0 until it sets another, with CUDA that
 * of its context; without a context, as always on host, that by local rank. */
typedef struct cco_group_options {
  uint32_t struct_size;           /* sizeof(cco_group_options) of the caller */
  uint32_t rank;                  /* or CCO_RANK_FROM_ENVIRONMENT */
  uint32_t size;                  /* ranks in the group, 1..1024 */
  int32_t device;                 /* whose memory this rank brings: an ordinal of this process, or
                                     CCO_DEVICE_BY_LOCAL_RANK, CCO_DEVICE_CURRENT */
  const char* gpu_uuid;           /* the same by UUID; null: `device` counts */
  const char* name;               /* of the group, 1..127 bytes without control characters,
                                     within this user's groups */
  const cco_unique_id* unique_id; /* instead of a name */
  uint64_t slot_bytes; /* address space per rank, a multiple of 4 GiB, the same on every rank; 0:
                          the largest GPU's memory rounded up */
  uint32_t timeout_ms; /* 0: one minute */
  uint32_t lsa_size;   /* ranks per LSA team, a divisor of size, the same on every rank; 0:
                          $CCO_LSA_SIZE, else all ranks of the node. Less than that plays several
                          nodes on one, for trying what crosses nodes */
  const char* lease;   /* token of a lease (`ccoctl lease create`), 32 hex digits, the same on every
                          rank; null: $CCO_LEASE, else the lease that takes this process's cgroup,
                          if there is one */
} cco_group_options;

/* Forms a group with the other ranks and maps the control region. Collective. Several ranks may be
 * threads of one process and may share a GPU. Proves before it returns that every rank reaches
 * every other's memory.
 *
 * CCO_INVALID_ARGUMENT     rank or size out of range, neither or both of name and unique_id, ranks
 *                          disagree
 * CCO_ALREADY_EXISTS       somebody else is this rank
 * CCO_NOT_FOUND            no such device here, or the daemon does not know it; no launcher's
 *                          variables; no such lease for this process
 * CCO_FAILED_PRECONDITION  a peer's memory cannot be reached, or the self-test read something else
 *                          (says which); the lease has no bytes on this rank's GPU */
CCO_API cco_status cco_group_create(cco_client* client, const cco_group_options* options,
                                    cco_group** group);

typedef struct cco_shrink_options {
  uint32_t struct_size; /* sizeof(cco_shrink_options) of the caller */
  uint32_t timeout_ms;  /* 0: one minute */
} cco_shrink_options;

/* The ranks that are live go on in a new group, with the memory that they have: after a rank was
 * lost, without copying anything. Collective over the live ranks of `group`, which may be aborted;
 * one that leaves, or is lost and its process has exited, is not waited for (a process that lives
 * may still write into the others' memory). `options` may be null.
 *
 * In the new group they are numbered from 0 in their old order (LSA teams stay if they are still
 * of one size; else all ranks are one). Named windows of the heap come along, at the same offsets
 * and with their contents: cco_window_open() gives their handles. Unnamed windows, external memory
 * and communicators do not; make them anew. The flat map is a new one, so addresses are others.
 *
 * Kernels that use `group`, and what they posted, must have ended, on every live rank. On success
 * its windows and communicators are void, it is unmapped, and its handle can only be destroyed:
 * other calls give CCO_FAILED_PRECONDITION. On failure call it again, with the same handle:
 * survivors that have got the new group already do so with that one.
 *
 * CCO_ABORTED              a rank was lost meanwhile: try again
 * CCO_FAILED_PRECONDITION  memory of a live rank is gone, or a peer's cannot be reached */
CCO_API cco_status cco_group_shrink(cco_group* group, const cco_shrink_options* options,
                                    cco_group** survivors);

/* Leaves the group and unmaps its memory: kernels that use it, and what they posted, must have
 * ended, as for cco_window_destroy() and cco_comm_destroy(). Local. Windows and communicators of
 * the group are void afterwards. A rank that still waits for this one in a collective call gets
 * CCO_ABORTED. */
CCO_API void cco_group_destroy(cco_group* group);

typedef struct cco_group_info {
  uint32_t struct_size; /* in: sizeof(cco_group_info) of the caller */
  uint32_t rank;
  uint32_t size;
  uint32_t lsa_rank;
  uint32_t lsa_size;
  uint32_t lsa_first;  /* world rank of LSA rank 0 */
  int32_t device;      /* this process's ordinal */
  uint32_t slab_count; /* mapped so far, the control region included */
  uint64_t group_id;
  uint64_t generation;
  uint64_t flat_base; /* address of LSA rank 0's slot in this process */
  uint64_t slot_bytes;
} cco_group_info;
CCO_API cco_status cco_group_get_info(cco_group* group, cco_group_info* info);

/* Waits for all ranks. Collective; does not wait for kernels. timeout_ms 0: one minute. */
CCO_API cco_status cco_group_barrier(cco_group* group, uint32_t timeout_ms);

/* A barrier before a call that needs something of every rank: `problem` is null or empty if this
 * rank can go on, else a text that says why not (its first 1024 bytes count). Collective, matched
 * with cco_group_barrier(). Without it, ranks that go on would wait for one that can not. After a
 * time-out, call it again with the same text.
 *
 * CCO_FAILED_PRECONDITION  a rank can not go on: on every rank, with its text and its number */
CCO_API cco_status cco_group_agree(cco_group* group, const char* problem, uint32_t timeout_ms);

/* CCO_OK while all is well, else CCO_ABORTED with the cause. Reads a word of shared memory: cheap,
 * and needs no traffic to notice a lost peer. */
CCO_API cco_status cco_group_check(cco_group* group);

/* CCO_CONDITION_* of abi.h that hold now: what the daemon would have this rank act upon before it
 * has to. Cheap as cco_group_check(): ask between steps of work. */
CCO_API cco_status cco_group_get_conditions(cco_group* group, uint32_t* conditions);

/* Ends the group's collective calls and device waits, on every rank, for good. */
CCO_API cco_status cco_group_abort(cco_group* group);

/* ---- Windows --------------------------------------------------------------------------------- */

typedef struct cco_window_options {
  uint32_t struct_size;        /* sizeof(cco_window_options) of the caller */
  uint32_t timeout_ms;         /* 0: one minute */
  uint64_t size_bytes;         /* per rank, the same on every rank; any size from 1 */
  uint64_t alignment_bytes;    /* a power of two, 256..1 GiB; 0: 256 */
  uint32_t wait_for_memory_ms; /* how long to wait, within timeout_ms, for memory that others have,
                                  the same on every rank; 0: not at all */
  uint32_t reserved;           /* zero */
  uint64_t keep_ms; /* for how long its memory is kept once nobody uses it, up to 30 days,
                       the same on every rank; 0: not at all */
} cco_window_options;

/* Makes a window: a range of the group's symmetric heap, at the same offset on every rank.
 * Collective, matched by `name` (up to 127 bytes, no control characters); with a null or empty name
 * by order, which must then be the same on every rank. Contents are what earlier windows of the
 * same group left there, else zero.
 *
 * With wait_for_memory_ms it waits where a GPU has too little free: first come those of tenants of
 * higher priority, then tenants take turns. Nobody behind it gets what it waits for, but for the
 * control regions of new groups. Meanwhile all ranks on that GPU see
 * CCO_CONDITION_MEMORY_PRESSURE (cco_group_get_conditions()), as they do before, when most of it or
 * of their tenant's quota is taken. What a lease or a quota refuses, and what the GPU could never
 * hold, does not wait.
 *
 * With keep_ms the window outlives its users, however they end: `keep_ms` long after every rank has
 * destroyed it, has left, or has died and its process has exited, a group of the same name, user
 * and devices by rank that makes a window of this name and size, with keep_ms, gets it with its
 * contents, at the same offset if that is free; cco_window_get_info() tells. What a rank that died
 * was writing is as it left it. Its memory is its own (rounded up to the granularity), and counts
 * as this user's all the time: `ccoctl kept` lists such windows, `ccoctl evict` frees them.
 *
 * CCO_INVALID_ARGUMENT     size 0 or over the slot, a bad alignment, ranks disagree, or keep_ms
 *                          without a name of window and group, or over 30 days
 * CCO_FAILED_PRECONDITION  with keep_ms: a window of that name is kept with another size, or on
 *                          other devices
 * CCO_ALREADY_EXISTS       the group has a window of that name
 * CCO_RESOURCE_EXHAUSTED   as above, and no memory in time: what was asked and is free, the place
 *                          in the queue, and who has how much */
CCO_API cco_status cco_window_create(cco_group* group, const char* name,
                                     const cco_window_options* options, cco_window** window);

/* This rank's handle of a named window that came along when the group was shrunk. Local; once for
 * each window. cco_window_info.is_found is 1.
 *
 * CCO_NOT_FOUND       this rank has no heap window of that name
 * CCO_ALREADY_EXISTS  it has been opened */
CCO_API cco_status cco_window_open(cco_group* group, const char* name, cco_window** window);

typedef struct cco_external_memory {
  uint32_t struct_size;       /* sizeof(cco_external_memory) of the caller */
  int32_t fd;                 /* an export of the allocation for this GPU driver; borrowed */
  uint64_t allocation_bytes;  /* size of the whole allocation */
  uint64_t allocation_offset; /* where in it the window begins, a multiple of 16 */
} cco_external_memory;

/* Makes a window of memory that each rank already has; offsets and sizes of the allocations may
 * differ between ranks. Collective as cco_window_create();
 * options->alignment_bytes is ignored, and keep_ms must be 0. Nothing is copied, and the memory
 * lives until the last user has gone. Where the ranks' offsets are not equal modulo the allocation
 * granularity, the window has stride_4g 0 and is reached by table only.
 *
 * CCO_INVALID_ARGUMENT  not memory of this driver, too small, offset + size overflows or is out of
 *                       range */
CCO_API cco_status cco_window_register(cco_group* group, const char* name,
                                       const cco_window_options* options,
                                       const cco_external_memory* memory, cco_window** window);

/* Device memory of this process alone, zeroed by nobody, which can become a window on every rank
 * later: cco_memory_get_info() tells what cco_window_register() takes. Local. It is this process's
 * own, not the daemon's, and ends with the client.
 *
 * CCO_INVALID_ARGUMENT     size_bytes is 0
 * CCO_NOT_FOUND            no such device in this process
 * CCO_RESOURCE_EXHAUSTED   no memory, or no file descriptor: each takes one */
CCO_API cco_status cco_memory_create(cco_client* client, int32_t device, uint64_t size_bytes,
                                     cco_memory** memory);

/* The same of `size_bytes` bytes, from `address` on, of memory that somebody else in this process
 * has allocated: with CUDA's or HIP's virtual memory management and a handle that can be exported
 * as a file descriptor; on host, a shared mapping of a memfd of which a descriptor is open. It gets
 * a second address. Nothing is copied, and it lives until both owners have given it up. Local.
 *
 * CCO_INVALID_ARGUMENT     no such memory, as what cudaMalloc() gives is none, not exportable, or
 *                          not within one allocation: the message says what to change */
CCO_API cco_status cco_memory_import(cco_client* client, int32_t device, const void* address,
                                     uint64_t size_bytes, cco_memory** memory);

/* Unmaps it: kernels that use this address must have ended. Windows of it go on. */
CCO_API void cco_memory_destroy(cco_memory* memory);

typedef struct cco_memory_info {
  uint32_t struct_size; /* in: sizeof(cco_memory_info) of the caller */
  int32_t device;
  uint64_t address;    /* for kernels and copies of this process */
  uint64_t size_bytes; /* as asked for */
  int32_t fd;          /* borrowed, until cco_memory_destroy(); with the next two what
                          cco_external_memory takes */
  uint32_t reserved;   /* zero */
  uint64_t allocation_bytes;
  uint64_t allocation_offset;
} cco_memory_info;
CCO_API cco_status cco_memory_get_info(cco_memory* memory, cco_memory_info* info);

/* Gives up this rank's use. Local. The range is reused when all ranks have; a window with keep_ms
 * is unmapped, and kept when all have.
 *
 * Kernels that use the window must have ended: synchronise their streams. So must what they posted
 * by SDMA or GDA, which outlives a kernel: let kernels end with quiet() or flush(). An operation of
 * this rank that comes later fails where a CPU or a NIC checks it: calls on that queue return
 * kFailed, and cco_comm_check() says which operation it was. An engine that checks nothing (SDMA
 * "user-queue") writes into whatever the range serves then, or faults. */
CCO_API void cco_window_destroy(cco_window* window);

typedef struct cco_window_info {
  uint32_t struct_size; /* in: sizeof(cco_window_info) of the caller */
  uint32_t is_found;  /* 1: its contents are those of an earlier use: it was kept, or it came along
                         when the group was shrunk; else 0 */
  uint64_t window_id; /* as `ccoctl windows` shows it */
  uint64_t generation;
  uint64_t size_bytes;
  uint64_t offset; /* in every rank's slot; of external memory: in rank 0's */
} cco_window_info;
CCO_API cco_status cco_window_get_info(cco_window* window, cco_window_info* info);

/* For kernels, by value; valid until cco_window_destroy(). */
CCO_API cco_status cco_window_get_device(cco_window* window, cco_window_device* device);

/* The same struct in device memory, for kernels that take a pointer. */
CCO_API cco_status cco_window_get_device_pointer(cco_window* window,
                                                 const cco_window_device** pointer);

/* Address, for kernels and copies of this process, of `offset` in LSA rank `lsa_rank`'s copy.
 * CCO_OUT_OF_RANGE: no such rank, or offset >= size. */
CCO_API cco_status cco_window_get_address(cco_window* window, uint32_t lsa_rank, uint64_t offset,
                                          void** address);

/* ---- Windows shared across tenants ----------------------------------------------------------- */

typedef struct cco_grant_token {
  unsigned char bytes[16];
} cco_grant_token;

#define CCO_ACCESS_READ 1u
#define CCO_ACCESS_READ_WRITE 2u

/* Lets processes of another tenant attach to this window, on all ranks, with `*token`, a secret
 * that this process gives them as it likes. Local. `tenant` is its name, as `ccoctl tenants` shows
 * it there. The token works for that tenant alone, any number of times, until it is revoked or
 * nobody uses the window any more; it comes along when the group is shrunk.
 *
 * CCO_ACCESS_READ is enforced against a process that maps the memory itself where the driver can:
 * on host, unless the process runs as the daemon's own user or as root. On cuda and hip it binds
 * those who use this library alone: whoever can attach could write. cco_attachment_info says
 * which, and `ccoctl windows`.
 *
 * CCO_INVALID_ARGUMENT     no such access, or no text that could be a tenant's name. Whether there
 *                          is such a tenant is not told
 * CCO_FAILED_PRECONDITION  the window shares its memory with others: create it with keep_ms; or the
 *                          daemon's configuration allows no access that is not enforced */
CCO_API cco_status cco_window_grant(cco_window* window, const char* tenant, uint32_t access,
                                    cco_grant_token* token);

/* Voids the token. Local. Who is attached stays so: mappings cannot be taken back.
 * CCO_NOT_FOUND: this window has no grant of that token. */
CCO_API cco_status cco_window_revoke(cco_window* window, const cco_grant_token* token);

/* Attaches to a window that `token` grants to this process's tenant, and maps every rank's copy for
 * `device`, an ordinal of this process. Local; its owners notice nothing. The memory stays theirs,
 * and there until the attachment ends, whatever becomes of them.
 *
 * CCO_NOT_FOUND            no such device here; or the token never was, is void, or is not for this
 *                          process's tenant, alike
 * CCO_FAILED_PRECONDITION  this device cannot reach that memory, or some of it is gone */
CCO_API cco_status cco_attachment_create(cco_client* client, const cco_grant_token* token,
                                         int32_t device, cco_attachment** attachment);

/* Unmaps it: kernels that use it must have ended. Local. */
CCO_API void cco_attachment_destroy(cco_attachment* attachment);

typedef struct cco_attachment_info {
  uint32_t struct_size; /* in: sizeof(cco_attachment_info) of the caller */
  uint32_t access;      /* CCO_ACCESS_READ or CCO_ACCESS_READ_WRITE */
  uint64_t size_bytes;  /* of the window, per rank */
  uint32_t rank_count;
  uint32_t is_enforced; /* 0: for reading, and only this library keeps to that; else 1 */
} cco_attachment_info;
CCO_API cco_status cco_attachment_get_info(cco_attachment* attachment, cco_attachment_info* info);

/* Address, for kernels and copies of this process, of `offset` in `rank`'s copy. Stores to an
 * attachment for reading fault. CCO_OUT_OF_RANGE: no such rank, or offset >= size. */
CCO_API cco_status cco_attachment_get_address(cco_attachment* attachment, uint32_t rank,
                                              uint64_t offset, void** address);

/* ---- Device communicators -------------------------------------------------------------------- */

typedef struct cco_comm_options {
  uint32_t struct_size;   /* sizeof(cco_comm_options) of the caller */
  uint32_t signal_count;  /* 8-byte signals per rank, 0..65536 */
  uint32_t barrier_count; /* LSA barriers that may be in use at once, 0..4096 */
  uint32_t timeout_ms;    /* 0: one minute */
  /* From here on all zero asks for LSA and TDM alone, which are always there. */
  uint32_t transports; /* CCO_TRANSPORT_SDMA | CCO_TRANSPORT_GDA: what must be there as well */
  uint32_t sdma_queue_count;  /* per peer, 1..8; 0: 2 */
  const char* sdma_provider;  /* "user-queue", "copy-engine", "host"; null: $CCO_SDMA_PROVIDER, else
                                 the best that works */
  const char* gda_provider;   /* "proxy", "mlx5", "bnxt", "ionic"; null: $CCO_GDA_PROVIDER, else the
                                 best that works */
  uint32_t gda_connection;    /* CCO_GDA_CONNECT_FULL, _CROSS_NODE or _RAIL; 0: FULL */
  uint32_t gda_context_count; /* queue pairs per peer, 1..64; 0: 4 */
  uint32_t gda_signal_count;  /* per rank, 0..65536 */
  uint32_t gda_counter_count; /* per rank, 0..65536 */
  uint32_t gda_queue_depth;   /* operations per queue pair, a power of two, 16..32768; 0: 1024 */
  int32_t gda_traffic_class;  /* of the packets, 0..255; -1: the provider's default */
  uint32_t rail_barrier_count;  /* over the ranks of other nodes with this LSA rank; with GDA */
  uint32_t world_barrier_count; /* over all ranks, LSA and rail; with GDA. 0..4096 each */
} cco_comm_options;

/* Makes a device communicator: signals, barriers and queues, its words zero on every rank when any
 * rank returns. Collective, matched by order: every rank creates its communicators and unnamed
 * windows in the same order, with the same counts, transports and GDA provider. Every transport
 * that is asked for has then moved bytes to every peer and back.
 *
 * CCO_INVALID_ARGUMENT     a count over its limit, no such provider, or ranks disagree
 * CCO_FAILED_PRECONDITION  a transport that was asked for is not to be had, here or on another
 *                          rank: the message says what was tried. `ccoctl transports` shows all */
CCO_API cco_status cco_comm_create(cco_group* group, const cco_comm_options* options,
                                   cco_comm** comm);

/* Ends this rank's queues. Local. Kernels that use it, and what they posted, must have ended, as
 * for cco_window_destroy(). What is still posted moves a part of its bytes or none, its signals may
 * never rise, and nobody is told: peers that wait for them wait until their deadline. */
CCO_API void cco_comm_destroy(cco_comm* comm);

/* CCO_OK while all is well. CCO_INTERNAL: a transport has reported an error to a kernel (its calls
 * return kFailed); the message says which, and cco_error_rank() with whom. Cheap. */
CCO_API cco_status cco_comm_check(cco_comm* comm);

/* For kernels, by value; valid until cco_comm_destroy(). */
CCO_API cco_status cco_comm_get_device(cco_comm* comm, cco_device_comm* device);

/* The same struct in device memory, for kernels that take a pointer. */
CCO_API cco_status cco_comm_get_device_pointer(cco_comm* comm, const cco_device_comm** pointer);

/* ---- Release queues: for bindings of languages with an interpreter --------------------------- */

/* Foreign code lets go of what a binding has lent it (a DLPack tensor) wherever it likes: in a
 * thread that the interpreter does not know, while an exception is on its way, after the
 * interpreter has ended. No code of the language may run there. cco_release() only notes the object
 * down and asks the interpreter to call back; it takes no lock, allocates nothing, and works from
 * any thread, at any time. In a forked child it asks nobody: there the binding drains by itself. */
typedef struct cco_release_queue cco_release_queue;

/* Lies directly before every such object, and as long as the object is the binding's. */
typedef struct cco_release_header {
  struct cco_release_header* next; /* the library's */
  cco_release_queue* queue;        /* where the object is noted down */
} cco_release_header;

typedef struct cco_release_queue_options {
  uint32_t struct_size; /* sizeof(cco_release_queue_options) of the caller */
  uint32_t reserved;    /* 0 */
  /* Has the interpreter call work(argument) once, soon, where its code may run. Non-zero: not now;
   * then the next release asks again. Called from any thread; must neither wait nor call back. For
   * Python: Py_AddPendingCall. */
  int (*schedule)(int (*work)(void*), void* argument);
  /* The binding takes `object` back; it may free it. Called by cco_release_queue_drain(). */
  void (*released)(void* object);
  /* What cco_release_capsule() asks, for all queues of the process, or null: PyCapsule_IsValid and
   * PyCapsule_GetPointer. */
  int (*capsule_is_valid)(void* capsule, const char* name);
  void* (*capsule_pointer)(void* capsule, const char* name);
} cco_release_queue_options;

/* It stays until the process ends: releases may come that late. */
CCO_API cco_status cco_release_queue_create(const cco_release_queue_options* options,
                                            cco_release_queue** queue);

/* Takes back, in this thread, what has been noted down by now. Always 0: it is what `schedule` is
 * given, with the queue. Null and closed queues have nothing. */
CCO_API int32_t cco_release_queue_drain(void* queue);

/* The interpreter ends: neither `schedule` nor `released` is called any more, and none is running
 * in `schedule` when this returns. What is still out is left to the end of the process. */
CCO_API void cco_release_queue_close(cco_release_queue* queue);

/* Notes `object` down; null: nothing. It is a DLPack tensor's deleter. */
CCO_API void cco_release(void* object);

/* Does so for a tensor in a PyCapsule that no consumer has taken. It is the capsule's destructor,
 * for capsules named "dltensor" or "dltensor_versioned". */
CCO_API void cco_release_capsule(void* capsule);

#ifdef __cplusplus
}
#endif

#endif /* CCO_CCO_H_ */
