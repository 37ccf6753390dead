/* A ring of work items: kernels post, a thread on the CPU performs. Behind SDMA's copy-engine and
 * GDA's proxy provider. Plain C, frozen per CCO_ABI_VERSION as abi.h.
 *
 * An item names windows by generation, never by address, so that whoever performs it can check all
 * of it. Positions count from 0 for ever and lie in slot `position % depth`. Items are performed in
 * order of position.
 *
 * Each of an item's eight words says by itself whether it is there: the header by the low 32 bits
 * of the position plus one, the others by their top bit, CCO_WORK_LAP. So the producer releases
 * once, at system scope, and then stores the words in any order, each whole; nothing waits until
 * they have crossed the bus. What an item says in them is below 2^63 for that reason;
 * `signal_delta`, which may be anything, has its top bit in the header. */
#ifndef CCO_DEVICE_ABI_WORK_H_
#define CCO_DEVICE_ABI_WORK_H_

#include "cco/device/abi.h"

/* Operations. */
#define CCO_WORK_NONE 0u  /* moves nothing; a signal is still raised */
#define CCO_WORK_PUT 1u   /* own copy of `local` window -> peer's copy of `remote` window */
#define CCO_WORK_GET 2u   /* peer's copy of `remote` window -> own copy of `local` window */
#define CCO_WORK_VALUE 3u /* CCO_WORK_VALUE_OF itself, its low `bytes` (1, 2, 4, 8), -> remote */

/* Which signals rise once the bytes have landed; bits. */
#define CCO_WORK_SIGNAL_REMOTE 0x1u /* the peer's signal `signal_index` by `signal_delta` */
#define CCO_WORK_SIGNAL_LOCAL 0x2u  /* this rank's */
#define CCO_WORK_DELTA_TOP 0x80u    /* beside them: the top bit of `signal_delta` */

typedef struct cco_work_item {
  uint64_t header;            /* low to high: sequence 32, operation 8, signal bits 8, peer 16 */
  uint64_t bytes;             /* any length; 0 moves nothing, signals still rise */
  uint64_t remote_generation; /* window on the peer */
  uint64_t remote_offset;
  uint64_t local_generation; /* window on this rank; or the high half of CCO_WORK_VALUE's value */
  uint64_t local_offset;     /* or the low half */
  uint64_t signal_index;     /* what it counts is the transport's */
  uint64_t signal_delta;
} cco_work_item;

#define CCO_WORK_HEADER(sequence, operation, signals, peer)                                   \
  ((uint64_t)(uint32_t)(sequence) | (uint64_t)(operation) << 32 | (uint64_t)(signals) << 40 | \
   (uint64_t)(uint16_t)(peer) << 48)
#define CCO_WORK_SEQUENCE(header) ((uint32_t)((header)&0xffffffffu))
#define CCO_WORK_OPERATION(header) ((uint32_t)((header) >> 32 & 0xffu))
#define CCO_WORK_SIGNALS(header) ((uint32_t)((header) >> 40 & 0xffu))
#define CCO_WORK_PEER(header) ((uint32_t)((header) >> 48))

/* The top bit of words 1..7 of the item at `position`: set on the first lap, and flips on each, so
 * that neither zeroed memory nor the lap before looks like it. */
#define CCO_WORK_TOP ((uint64_t)1 << 63)
#define CCO_WORK_LAP(position, depth) (((position) & (depth)) == 0 ? CCO_WORK_TOP : (uint64_t)0)

#define CCO_WORK_VALUE_OF(local_generation, local_offset) \
  ((uint64_t)(local_generation) << 32 | (uint64_t)(uint32_t)(local_offset))

/* One ring as its producers see it. The words it points to are 8-byte aligned and live in host
 * memory that the GPU reaches, or in device memory. */
typedef struct cco_work_ring {
  uint64_t items;     /* address of cco_work_item[depth]; host memory */
  uint64_t posted;    /* address of uint64_t: positions handed out; device memory */
  uint64_t completed; /* address of uint64_t: positions done, in order, with CCO_WORK_FAILED;
                         written by the consumer */
  uint64_t seen;  /* address of uint64_t: `completed` as last read by a producer; device memory */
  uint64_t error; /* address of uint64_t: 0, else the first failure, CCO_WORK_ERROR; final */
  uint32_t depth; /* items, a power of two */
  uint32_t reserved; /* zero */
} cco_work_ring;

/* In `completed`: one of these items was not performed, and `error` says why. One load thus tells
 * those who wait all they need. */
#define CCO_WORK_FAILED CCO_WORK_TOP
#define CCO_WORK_DONE(completed) ((completed) & ~CCO_WORK_FAILED)

/* Why an item was not performed. The ring goes on: later items are performed, and `error` stays. */
#define CCO_WORK_BAD_OPERATION 1u /* operation, signal bits, or value size */
#define CCO_WORK_BAD_PEER 2u      /* no such rank, or not reached by this transport */
#define CCO_WORK_BAD_WINDOW 3u    /* no window of that generation */
#define CCO_WORK_BAD_RANGE 4u     /* offset + bytes leaves the window */
#define CCO_WORK_BAD_SIGNAL 5u    /* signal index out of range */
#define CCO_WORK_COPY_FAILED 6u   /* the driver refused or failed */
#define CCO_WORK_ERROR(reason, peer) ((uint64_t)(peer) << 32 | (uint64_t)(reason))
#define CCO_WORK_ERROR_REASON(word) ((uint32_t)((word)&0xffffffffu))
#define CCO_WORK_ERROR_PEER(word) ((uint32_t)((word) >> 32))

CCO_ABI_ASSERT(sizeof(cco_work_item) == 64);
CCO_ABI_AT(cco_work_item, header, 0);
CCO_ABI_AT(cco_work_item, bytes, 8);
CCO_ABI_AT(cco_work_item, remote_generation, 16);
CCO_ABI_AT(cco_work_item, remote_offset, 24);
CCO_ABI_AT(cco_work_item, local_generation, 32);
CCO_ABI_AT(cco_work_item, local_offset, 40);
CCO_ABI_AT(cco_work_item, signal_index, 48);
CCO_ABI_AT(cco_work_item, signal_delta, 56);
CCO_ABI_ASSERT(sizeof(cco_work_ring) == 48);
CCO_ABI_AT(cco_work_ring, items, 0);
CCO_ABI_AT(cco_work_ring, posted, 8);
CCO_ABI_AT(cco_work_ring, completed, 16);
CCO_ABI_AT(cco_work_ring, seen, 24);
CCO_ABI_AT(cco_work_ring, error, 32);
CCO_ABI_AT(cco_work_ring, depth, 40);
CCO_ABI_AT(cco_work_ring, reserved, 44);

#endif /* CCO_DEVICE_ABI_WORK_H_ */
