// Makes lsa_kernels.cc callable on the host; that file itself holds nothing of ours.
#include "cco/device/kernel.h"
#include "mori/cco/cco.hpp"

using mori::cco::ccoDevComm;
using mori::cco::ccoWindow_t;

extern "C" {
void lsa_places(ccoDevComm devComm, int* out);
void lsa_sum(ccoDevComm* devComm, ccoWindow_t win, int count, int scope, int hybrid, int* timedOut);
void lsa_find(ccoDevComm* devComm, const void* inside, const void* outside, ccoWindow_t* out);
}
CCO_KERNEL_TABLE(mori_lsa, lsa_places, lsa_sum, lsa_find);
