/* GDA as a kernel sees it. Plain C, frozen per CCO_ABI_VERSION as abi.h. Byte orders and queue
 * formats of the NICs are the providers' business; here all numbers are in the CPU's order. */
#ifndef CCO_DEVICE_ABI_GDA_H_
#define CCO_DEVICE_ABI_GDA_H_

#include "cco/device/abi.h"
#include "cco/device/abi_work.h"

/* Providers. */
#define CCO_GDA_PROXY 1u /* kernels post work items; a CPU thread performs them */
#define CCO_GDA_MLX5 2u
#define CCO_GDA_BNXT 3u
#define CCO_GDA_IONIC 4u

/* Whom queues are connected to. */
#define CCO_GDA_CONNECT_NONE 0u
#define CCO_GDA_CONNECT_FULL 1u       /* every rank, those of this node and itself included */
#define CCO_GDA_CONNECT_CROSS_NODE 2u /* every rank of other nodes */
#define CCO_GDA_CONNECT_RAIL 3u       /* the ranks of other nodes with this LSA rank */

#define CCO_GDA_MAX_CONTEXTS 64u
#define CCO_GDA_MAX_MESSAGE_BYTES 0x40000000u /* 1 GiB; longer puts and gets are split */

/* What producers and pollers of one queue pair share; in device memory, zero at first. Indices
 * count units of the send queue (see sq_depth), for ever; hardware sees their low bits. */
typedef struct cco_gda_queue_state {
  uint64_t reserved;  /* handed out to producers */
  uint64_t rung;      /* written in full, and rung or about to be: aggregated ones come later */
  uint64_t completed; /* known to be completed */
  uint64_t error;     /* that of the queue, close at hand */
  uint64_t covered;   /* by the last doorbell */
  uint64_t sequence;  /* bnxt: PSN of the next message, written in order */
  uint64_t zero[2];
} cco_gda_queue_state;

/* One queue pair. */
typedef struct cco_gda_queue {
  uint32_t qpn; /* 24 bits (bnxt: 20); 0: no connection to that peer */
  uint32_t
      sq_depth; /* a power of two; in mlx5's 64-byte blocks, bnxt's 16-byte slots, ionic's WQEs */
  uint64_t sq;  /* address of the send queue */
  uint64_t cq;  /* address of the completion queue */
  uint32_t cq_depth; /* entries; 1: collapsed, one entry that is written over */
  uint32_t mtu_bytes;
  uint64_t doorbell_record; /* mlx5: address of the two be32 words; else 0 */
  uint64_t doorbell;        /* address of the SQ's 8-byte doorbell register */
  uint64_t cq_doorbell;     /* address of the CQ's, where it must be rung (ionic); else 0 */
  uint64_t msn_table;       /* bnxt: address; else 0 */
  uint32_t msn_depth;       /* entries, a power of two */
  uint32_t peer;            /* world rank */
  uint64_t state;           /* address of the cco_gda_queue_state */
  uint64_t sink; /* remote-operation address of 8 bytes that take unwanted fetch results */
  uint32_t sink_key;
  uint32_t max_message_bytes; /* a power of two */
  uint64_t error;    /* address of uint64_t: 0, else CCO_GDA_ERROR; final; in host memory */
  uint64_t reserved; /* zero */
} cco_gda_queue;

/* `syndrome` is the provider's own completion status; see reference tables in impl/nic_*.h. */
#define CCO_GDA_ERROR(syndrome, peer) \
  ((uint64_t)(peer) << 32 | 0x10000u | (uint64_t)(uint16_t)(syndrome))
#define CCO_GDA_ERROR_SYNDROME(word) ((uint32_t)((word)&0xffffu))
#define CCO_GDA_ERROR_PEER(word) ((uint32_t)((word) >> 32))

/* Signal i of rank r: the sum of the `signal_slots` words at
 *   control address(r, signal_offset + 8 * (i * signal_slots + slot))
 * NICs add to one word; the proxy has no atomic there, so each sender has a slot of its own, its
 * world rank, and one writer. Signals after the first `signal_count` belong to the barriers. */
typedef struct cco_gda_device {
  uint32_t abi_version;
  uint32_t provider;      /* CCO_GDA_PROXY .. */
  uint32_t connection;    /* CCO_GDA_CONNECT_* */
  uint32_t context_count; /* queue pairs per peer, or rings; 1..CCO_GDA_MAX_CONTEXTS */
  uint32_t node_count;    /* world_size / lsa_size */
  uint32_t signal_count;  /* the user's */
  uint32_t signal_slots;  /* 1, or world_size */
  uint32_t counter_count;
  uint32_t rail_barrier_count;
  uint32_t rail_signal_first; /* barrier b, sender s: signal first + b * rail_barrier_slots + s */
  uint32_t world_barrier_count;
  uint32_t world_signal_first;  /* rail stage of world barrier b, sender node n: first + b *
                                   node_count + n */
  uint32_t world_barrier_first; /* LSA barrier of world barrier 0 */
  uint32_t rail_barrier_slots;  /* senders: nodes with CCO_GDA_CONNECT_RAIL, else world ranks */
  uint64_t queues;         /* address of cco_gda_queue[world_size][context_count]; 0 with proxy */
  uint64_t rings;          /* address of cco_work_ring[context_count]; 0 with NICs */
  uint64_t signal_offset;  /* in `control` */
  uint64_t shadow_offset;  /* in `control`, this rank's: uint64_t per signal, what waits consumed */
  uint64_t counter_offset; /* in `control`, this rank's: uint64_t[counter_count] */
  uint64_t epoch_offset; /* in `control`, this rank's: uint64_t per rail, then per world barrier */
  uint64_t reserved[3];  /* zero */
} cco_gda_device;

CCO_ABI_ASSERT(sizeof(cco_gda_queue_state) == 64);
CCO_ABI_AT(cco_gda_queue_state, reserved, 0);
CCO_ABI_AT(cco_gda_queue_state, rung, 8);
CCO_ABI_AT(cco_gda_queue_state, completed, 16);
CCO_ABI_AT(cco_gda_queue_state, error, 24);
CCO_ABI_AT(cco_gda_queue_state, covered, 32);
CCO_ABI_AT(cco_gda_queue_state, sequence, 40);
CCO_ABI_AT(cco_gda_queue_state, zero, 48);
CCO_ABI_ASSERT(sizeof(cco_gda_queue) == 112);
CCO_ABI_AT(cco_gda_queue, qpn, 0);
CCO_ABI_AT(cco_gda_queue, sq_depth, 4);
CCO_ABI_AT(cco_gda_queue, sq, 8);
CCO_ABI_AT(cco_gda_queue, cq, 16);
CCO_ABI_AT(cco_gda_queue, cq_depth, 24);
CCO_ABI_AT(cco_gda_queue, mtu_bytes, 28);
CCO_ABI_AT(cco_gda_queue, doorbell_record, 32);
CCO_ABI_AT(cco_gda_queue, doorbell, 40);
CCO_ABI_AT(cco_gda_queue, cq_doorbell, 48);
CCO_ABI_AT(cco_gda_queue, msn_table, 56);
CCO_ABI_AT(cco_gda_queue, msn_depth, 64);
CCO_ABI_AT(cco_gda_queue, peer, 68);
CCO_ABI_AT(cco_gda_queue, state, 72);
CCO_ABI_AT(cco_gda_queue, sink, 80);
CCO_ABI_AT(cco_gda_queue, sink_key, 88);
CCO_ABI_AT(cco_gda_queue, max_message_bytes, 92);
CCO_ABI_AT(cco_gda_queue, error, 96);
CCO_ABI_AT(cco_gda_queue, reserved, 104);
CCO_ABI_ASSERT(sizeof(cco_gda_device) == 128);
CCO_ABI_AT(cco_gda_device, abi_version, 0);
CCO_ABI_AT(cco_gda_device, provider, 4);
CCO_ABI_AT(cco_gda_device, connection, 8);
CCO_ABI_AT(cco_gda_device, context_count, 12);
CCO_ABI_AT(cco_gda_device, node_count, 16);
CCO_ABI_AT(cco_gda_device, signal_count, 20);
CCO_ABI_AT(cco_gda_device, signal_slots, 24);
CCO_ABI_AT(cco_gda_device, counter_count, 28);
CCO_ABI_AT(cco_gda_device, rail_barrier_count, 32);
CCO_ABI_AT(cco_gda_device, rail_signal_first, 36);
CCO_ABI_AT(cco_gda_device, world_barrier_count, 40);
CCO_ABI_AT(cco_gda_device, world_signal_first, 44);
CCO_ABI_AT(cco_gda_device, world_barrier_first, 48);
CCO_ABI_AT(cco_gda_device, rail_barrier_slots, 52);
CCO_ABI_AT(cco_gda_device, queues, 56);
CCO_ABI_AT(cco_gda_device, rings, 64);
CCO_ABI_AT(cco_gda_device, signal_offset, 72);
CCO_ABI_AT(cco_gda_device, shadow_offset, 80);
CCO_ABI_AT(cco_gda_device, counter_offset, 88);
CCO_ABI_AT(cco_gda_device, epoch_offset, 96);
CCO_ABI_AT(cco_gda_device, reserved, 104);

#endif /* CCO_DEVICE_ABI_GDA_H_ */
