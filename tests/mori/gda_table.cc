// Makes gda_kernels.cc callable on the host; that file itself holds nothing of ours.
#include "cco/device/kernel.h"
#include "mori/cco/cco.hpp"

using mori::cco::ccoDevComm;
using mori::cco::ccoWindow_t;

extern "C" {
void gda_all_to_all(ccoDevComm devComm, ccoWindow_t win, size_t chunk, uint64_t* out);
void gda_operations(ccoDevComm devComm, ccoWindow_t win, int peer, int scope, uint64_t* out);
void gda_meet(ccoDevComm* devComm, ccoWindow_t win, int rounds, int hybrid, uint64_t* out);
}
CCO_KERNEL_TABLE(mori_gda, gda_all_to_all, gda_operations, gda_meet);
