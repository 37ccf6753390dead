// MORI CCO's interface (ROCm/mori, include/mori/cco/cco.hpp at 624002c8) over cco: programs written
// for it recompile unchanged and link libcco_mori. What differs on purpose: ../README.md.
//
// Everything is declared in plain C++ too, where host threads run kernels. ::cco is a namespace of
// ours: write mori::cco, or `using namespace mori::cco`, not `using namespace mori` or a global
// alias named cco.
#pragma once

#if !defined(BUILD_CCO_SDMA)
#define BUILD_CCO_SDMA 0
#endif

#include "mori/cco/host.hpp"
#include "mori/cco/lsa.hpp"
#include "mori/cco/teams.hpp"
#include "mori/cco/types.hpp"
#if BUILD_CCO_SDMA
#include "mori/cco/sdma.hpp"
#endif
