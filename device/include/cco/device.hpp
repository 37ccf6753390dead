// The device interface: what a kernel includes.
#pragma once

#include "cco/device/abi.h"
#include "cco/device/atomic.h"
#include "cco/device/coop.h"
#include "cco/device/deadline.h"
#include "cco/device/gda.h"
#include "cco/device/gda_barrier.h"
#include "cco/device/kernel.h"
#include "cco/device/lanes.h"
#include "cco/device/lsa.h"
#include "cco/device/platform.h"
#include "cco/device/sdma.h"
#include "cco/device/tdm.h"
#include "cco/device/team.h"
