/* Structs shared by client library, kernels and bindings. Plain C: the layout is the contract.
 *
 * Layouts are frozen per CCO_ABI_VERSION; a new field is a new version. Addresses are device
 * virtual addresses of the process that created the struct and are held as uint64_t, so that the
 * struct means the same to every compiler. Every struct may be passed to a kernel by value or
 * placed in memory the kernel can read. */
#ifndef CCO_DEVICE_ABI_H_
#define CCO_DEVICE_ABI_H_

#include <stddef.h>
#include <stdint.h>

#define CCO_ABI_VERSION 4u

/* Bits of `transports`. A window has those that it is registered with, which are all; which of them
 * reach a peer stands in the communicator (one word per peer in peer_transports, and their AND in
 * transports). */
#define CCO_TRANSPORT_LSA 0x1u  /* load and store through the flat map */
#define CCO_TRANSPORT_SDMA 0x2u /* copy engine */
#define CCO_TRANSPORT_TDM 0x4u  /* tensor data mover, bulk copy */
#define CCO_TRANSPORT_GDA 0x8u  /* device-initiated RDMA */

/* One window as a kernel sees it.
 *
 *   address of `offset` in LSA rank r's copy, arithmetic:  win_base + ((uint64_t)stride_4g << 32) *
 * r + offset the same by table:                                     ((uint64_t*)peer_bases)[r] +
 * offset
 *
 * stride_4g == 0 with lsa_size > 1 means that only the table holds (registered memory that lies at
 * different places inside its allocations). The first 40 bytes after abi_version and flags carry
 * MORI CCO's ccoWindowDevice. */
typedef struct cco_window_device {
  uint32_t abi_version; /* CCO_ABI_VERSION of the builder */
  uint32_t transports;  /* CCO_TRANSPORT_* that the window is registered with */
  uint64_t win_base;    /* address in slot 0; not "mine" */
  uint32_t stride_4g;   /* slot size in units of 4 GiB */
  uint32_t lsa_rank;    /* this rank's index in its LSA team */
  uint64_t remote_keys; /* address of uint32_t[world_size]; 0 without GDA */
  uint32_t local_key;   /* 0 without GDA */
  uint32_t lsa_size;    /* ranks in the LSA team, 1.. */
  uint64_t size_bytes;  /* usable bytes per rank, as asked for */
  uint64_t generation;  /* unique within the daemon's incarnation; never 0 */
  uint64_t peer_bases;  /* address of uint64_t[lsa_size]: this window in each LSA rank's copy */
  uint64_t incarnation; /* of the daemon that made the window */
  uint64_t reserved[3]; /* zero */
} cco_window_device;

/* A group as a kernel sees it: topology, clock, and the resources asked for at creation, which lie
 * in the control region. All resource words are uint64_t, zeroed before any rank's create call
 * returns, and only ever grow.
 *
 *   signal i of LSA rank r           control address(r, signal_offset + 8 * i)
 *   barrier b's inbox of rank r      control address(r, barrier_offset + 8 * (b * (lsa_size + 1) +
 * 1 + sender)) barrier b's own epoch            control address(lsa_rank, barrier_offset + 8 * b *
 * (lsa_size + 1))
 *
 * where control address(r, o) is the address of offset o in `control`. */
typedef struct cco_device_comm {
  uint32_t abi_version; /* CCO_ABI_VERSION of the builder */
  uint32_t transports;  /* CCO_TRANSPORT_* usable for every peer of the LSA team */
  uint32_t rank;        /* in the group, 0..world_size-1 */
  uint32_t world_size;
  uint32_t lsa_rank;
  uint32_t lsa_size;
  uint32_t lsa_first; /* world rank of LSA rank 0; the team is contiguous in world order */
  uint32_t signal_count;
  uint32_t barrier_count;
  uint32_t clock_khz;     /* ticks of the device clock per millisecond: see cco/device/deadline.h */
  uint64_t flat_base;     /* address of slot 0 */
  uint64_t slot_bytes;    /* multiple of 4 GiB */
  uint64_t signal_offset; /* in `control` */
  uint64_t barrier_offset; /* in `control` */
  uint64_t abort_word; /* address of a uint64_t in host memory: see CCO_ABORT_*; read it seldom */
  uint64_t
      peer_transports;  /* address of uint32_t[lsa_size]; 0: `transports` holds for every peer */
  uint64_t generation;  /* unique within the daemon's incarnation; never 0 */
  uint64_t incarnation; /* of the daemon that made the group */
  uint64_t sdma;        /* address of a cco_sdma_device (abi_sdma.h); 0: no SDMA */
  uint64_t gda;         /* address of a cco_gda_device (abi_gda.h); 0: no GDA */
  uint64_t reserved[2]; /* zero */
  cco_window_device
      control; /* the range of the control region that holds this communicator's words */
} cco_device_comm;

/* The abort word: 0 while all is well, then one final value for the life of the group. */
#define CCO_ABORT_NONE 0u
#define CCO_ABORT_PEER_LOST 1u /* a rank's process or connection is gone */
#define CCO_ABORT_REQUESTED 2u /* somebody called for it: cco_group_abort() or ccoctl */
#define CCO_ABORT_REVOKED 3u   /* an operator took a GPU of the group out of service */
#define CCO_ABORT_REASON(word) ((uint32_t)((word)&0xffffffffu))
#define CCO_ABORT_RANK(word) \
  ((uint32_t)((word) >> 32)) /* world rank that was lost, that asked, or whose GPU it was */
#define CCO_ABORT_WORD(reason, rank) (((uint64_t)(rank) << 32) | (uint64_t)(reason))

/* The page behind abort_word. Written by the daemon alone; a client that scribbles on its copy
 * harms only itself. */
typedef struct cco_notice_page {
  uint32_t abi_version;
  uint32_t world_size;
  uint64_t abort_word;
  uint64_t epoch;          /* membership changes so far */
  uint64_t lost_ranks[16]; /* bit r of the 1024: world rank r is out */
  uint32_t conditions;     /* CCO_CONDITION_*, those that hold now */
  uint32_t reserved;       /* zero */
} cco_notice_page;

/* What a rank may want to act upon before it has to: nothing of its own has failed yet. Of the
 * rank's own GPU; bits come and go. */
#define CCO_CONDITION_DRAINING 0x1u        /* an operator takes the GPU out of service: leave */
#define CCO_CONDITION_MEMORY_PRESSURE 0x2u /* memory is short there */

#define CCO_MAX_RANKS 1024u /* per group */

#if defined(__cplusplus)
#define CCO_ABI_ASSERT(condition) static_assert(condition, #condition)
#else
#define CCO_ABI_ASSERT(condition) _Static_assert(condition, #condition)
#endif
#define CCO_ABI_AT(type, field, offset) CCO_ABI_ASSERT(offsetof(type, field) == (offset))

CCO_ABI_ASSERT(sizeof(cco_window_device) == 96);
CCO_ABI_AT(cco_window_device, abi_version, 0);
CCO_ABI_AT(cco_window_device, transports, 4);
CCO_ABI_AT(cco_window_device, win_base, 8);
CCO_ABI_AT(cco_window_device, stride_4g, 16);
CCO_ABI_AT(cco_window_device, lsa_rank, 20);
CCO_ABI_AT(cco_window_device, remote_keys, 24);
CCO_ABI_AT(cco_window_device, local_key, 32);
CCO_ABI_AT(cco_window_device, lsa_size, 36);
CCO_ABI_AT(cco_window_device, size_bytes, 40);
CCO_ABI_AT(cco_window_device, generation, 48);
CCO_ABI_AT(cco_window_device, peer_bases, 56);
CCO_ABI_AT(cco_window_device, incarnation, 64);
CCO_ABI_AT(cco_window_device, reserved, 72);

CCO_ABI_ASSERT(sizeof(cco_device_comm) == 232);
CCO_ABI_AT(cco_device_comm, abi_version, 0);
CCO_ABI_AT(cco_device_comm, transports, 4);
CCO_ABI_AT(cco_device_comm, rank, 8);
CCO_ABI_AT(cco_device_comm, world_size, 12);
CCO_ABI_AT(cco_device_comm, lsa_rank, 16);
CCO_ABI_AT(cco_device_comm, lsa_size, 20);
CCO_ABI_AT(cco_device_comm, lsa_first, 24);
CCO_ABI_AT(cco_device_comm, signal_count, 28);
CCO_ABI_AT(cco_device_comm, barrier_count, 32);
CCO_ABI_AT(cco_device_comm, clock_khz, 36);
CCO_ABI_AT(cco_device_comm, flat_base, 40);
CCO_ABI_AT(cco_device_comm, slot_bytes, 48);
CCO_ABI_AT(cco_device_comm, signal_offset, 56);
CCO_ABI_AT(cco_device_comm, barrier_offset, 64);
CCO_ABI_AT(cco_device_comm, abort_word, 72);
CCO_ABI_AT(cco_device_comm, peer_transports, 80);
CCO_ABI_AT(cco_device_comm, generation, 88);
CCO_ABI_AT(cco_device_comm, incarnation, 96);
CCO_ABI_AT(cco_device_comm, sdma, 104);
CCO_ABI_AT(cco_device_comm, gda, 112);
CCO_ABI_AT(cco_device_comm, reserved, 120);
CCO_ABI_AT(cco_device_comm, control, 136);

CCO_ABI_ASSERT(sizeof(cco_notice_page) == 160);
CCO_ABI_AT(cco_notice_page, abort_word, 8);
CCO_ABI_AT(cco_notice_page, epoch, 16);
CCO_ABI_AT(cco_notice_page, lost_ranks, 24);
CCO_ABI_AT(cco_notice_page, conditions, 152);

#if defined(__cplusplus)
#include <type_traits>
static_assert(std::is_trivially_copyable<cco_window_device>::value, "kernel argument");
static_assert(std::is_trivially_copyable<cco_device_comm>::value, "kernel argument");
namespace cco::device {
using Window = ::cco_window_device;
using DeviceComm = ::cco_device_comm;
}  // namespace cco::device
#endif

#endif /* CCO_DEVICE_ABI_H_ */
