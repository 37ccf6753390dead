// What was run, where and when: for reports.
#pragma once

#include "client/ctl/report.pb.h"

namespace cco {

/// Version, commit, command line, date and machine; the driver and its devices are the caller's to
/// add.
report::v1::Origin this_program(int argc, char** argv);

}  // namespace cco
