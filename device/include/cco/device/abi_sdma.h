/* SDMA as a kernel sees it. Plain C, frozen per CCO_ABI_VERSION as abi.h. */
#ifndef CCO_DEVICE_ABI_SDMA_H_
#define CCO_DEVICE_ABI_SDMA_H_

#include "cco/device/abi.h"
#include "cco/device/abi_work.h"

#define CCO_SDMA_USER_QUEUE \
  1u /* kernels write packets for an engine, or for software in its place */
#define CCO_SDMA_COPY_ENGINE 2u /* kernels post work items; a CPU thread issues copies */

#define CCO_SDMA_PACKETS_GFX9 1u    /* gfx90a, gfx942, gfx950 */
#define CCO_SDMA_PACKETS_GFX1250 2u /* scopes in packets; successive copies may overlap */

#define CCO_SDMA_MAX_QUEUES 8u

#define CCO_SDMA_STOPPED (~(uint64_t)0) /* as *read_index: the engine met an error, and ended */

/* One user queue. Indices count bytes, for ever; a place in the ring is `index % ring_bytes`.
 * Producers reserve, at most up to read_index + ring_bytes, write packets, and commit in the order
 * of their reservations. Whoever commits may ring first, for all up to its own packets, so that
 * write_index and doorbell only grow. */
typedef struct cco_sdma_queue {
  uint64_t ring;            /* address */
  uint64_t ring_bytes;      /* a power of two */
  uint64_t read_index;      /* address of uint64_t: consumed; written by the engine */
  uint64_t write_index;     /* address of uint64_t: what the engine may read up to */
  uint64_t doorbell;        /* address of uint64_t: takes the write index */
  uint64_t reserved_index;  /* address of uint64_t in device memory: handed out to producers */
  uint64_t committed_index; /* address of uint64_t in device memory: written, may be rung */
  uint64_t seen_index;      /* address of uint64_t in device memory: read_index as last read */
} cco_sdma_queue;

typedef struct cco_sdma_device {
  uint32_t abi_version;
  uint32_t provider;      /* CCO_SDMA_USER_QUEUE or CCO_SDMA_COPY_ENGINE */
  uint32_t queue_count;   /* per peer, 1..CCO_SDMA_MAX_QUEUES */
  uint32_t packets;       /* CCO_SDMA_PACKETS_*; 0 with copy-engine */
  uint64_t queues;        /* address of cco_sdma_queue[lsa_size][queue_count]; 0 with copy-engine */
  uint64_t rings;         /* address of cco_work_ring[queue_count]; 0 with user-queue */
  uint64_t signal_offset; /* in `control`: uint64_t[lsa_size][queue_count], by sender and queue */
  uint64_t landed;        /* address of uint64_t[lsa_size][queue_count]: up to which index a queue's
                             copies have landed, by fences of who asked; 0 with copy-engine */
  uint64_t largest_copy;  /* bytes of one COPY packet, a multiple of 32; 0 with copy-engine */
  uint64_t reserved[1];   /* zero */
} cco_sdma_device;

CCO_ABI_ASSERT(sizeof(cco_sdma_queue) == 64);
CCO_ABI_AT(cco_sdma_queue, ring, 0);
CCO_ABI_AT(cco_sdma_queue, ring_bytes, 8);
CCO_ABI_AT(cco_sdma_queue, read_index, 16);
CCO_ABI_AT(cco_sdma_queue, write_index, 24);
CCO_ABI_AT(cco_sdma_queue, doorbell, 32);
CCO_ABI_AT(cco_sdma_queue, reserved_index, 40);
CCO_ABI_AT(cco_sdma_queue, committed_index, 48);
CCO_ABI_AT(cco_sdma_queue, seen_index, 56);
CCO_ABI_ASSERT(sizeof(cco_sdma_device) == 64);
CCO_ABI_AT(cco_sdma_device, abi_version, 0);
CCO_ABI_AT(cco_sdma_device, provider, 4);
CCO_ABI_AT(cco_sdma_device, queue_count, 8);
CCO_ABI_AT(cco_sdma_device, packets, 12);
CCO_ABI_AT(cco_sdma_device, queues, 16);
CCO_ABI_AT(cco_sdma_device, rings, 24);
CCO_ABI_AT(cco_sdma_device, signal_offset, 32);
CCO_ABI_AT(cco_sdma_device, landed, 40);
CCO_ABI_AT(cco_sdma_device, largest_copy, 48);
CCO_ABI_AT(cco_sdma_device, reserved, 56);

#endif /* CCO_DEVICE_ABI_SDMA_H_ */
