// Stands for libcco_client.so: launches kernels that live in the program.
#include "cco/device/host_launch.h"

extern "C" __attribute__((visibility("default"))) void cco_test_launch(uint32_t threads,
                                                                       void (*kernel)(void**),
                                                                       void** arguments) {
  cco::device::launch_on_host({1, threads, 64}, kernel, arguments);
}
