// Makes mori_kernel.cc callable on the host; that file itself holds nothing of ours.
#include "cco/device/kernel.h"
#include "mori/cco/cco.hpp"

extern "C" {
void store_to_peers(mori::cco::ccoDevComm* comm, mori::cco::ccoWindowDevice* window, size_t chunk);
void store_meet_sum(mori::cco::ccoDevComm comm, mori::cco::ccoWindow_t window, int count,
                    unsigned* out);
}
CCO_KERNEL_TABLE(mori_kernel, store_to_peers, store_meet_sum);
