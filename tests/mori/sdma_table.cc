// Makes sdma_kernels.cc callable on the host; that file itself holds nothing of ours.
#include "cco/device/kernel.h"
#include "mori/cco/cco.hpp"

using mori::cco::ccoDevComm;
using mori::cco::ccoWindow_t;

extern "C" {
void sdma_all_to_all(ccoDevComm devComm, ccoWindow_t win, size_t chunk, uint64_t round,
                     uint64_t* failure);
void sdma_pull(ccoDevComm devComm, ccoWindow_t win, size_t chunk, int scope, uint64_t* failure);
void sdma_pieces(ccoDevComm devComm, ccoWindow_t win, size_t piece, uint64_t* failure);
void sdma_refused(ccoDevComm devComm, ccoWindow_t win, uint64_t* failure);
}
CCO_KERNEL_TABLE(mori_sdma, sdma_all_to_all, sdma_pull, sdma_pieces, sdma_refused);
