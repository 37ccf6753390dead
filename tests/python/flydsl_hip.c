// A libamdhip64 that says what it is asked to load and to launch, and does nothing. It has what
// FlyDSL's runtime needs.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOTHING(name) \
  int name(void) { return 0; }
NOTHING(hipDeviceSynchronize)
NOTHING(hipEventCreateWithFlags)
NOTHING(hipEventDestroy)
NOTHING(hipEventRecord)
NOTHING(hipEventSynchronize)
NOTHING(hipFree)
NOTHING(hipGetLastError)
NOTHING(hipHostGetDevicePointer)
NOTHING(hipHostRegister)
NOTHING(hipHostUnregister)
NOTHING(hipMalloc)
NOTHING(hipMemcpy)
NOTHING(hipMemcpyAsync)
NOTHING(hipMemset)
NOTHING(hipMemsetD16Async)
NOTHING(hipMemsetD32Async)
NOTHING(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor)
NOTHING(hipModuleUnload)
NOTHING(hipSetDevice)
NOTHING(hipStreamCreate)
NOTHING(hipStreamDestroy)
NOTHING(hipStreamSynchronize)
NOTHING(hipStreamWaitEvent)

const char* hipGetErrorName(int error) { return error == 0 ? "hipSuccess" : "an error"; }

int hipGetDevice(int* device) {
  *device = 0;
  return 0;
}

int hipModuleLoadData(void** module, const void* image) {
  *module = (void*)image;
  return memcmp(image, "\177ELF", 4) == 0 ? 0 : 1;
}

int hipModuleGetFunction(void** function, void* module, const char* name) {
  *function = strdup(name);  // For as long as the process.
  return module == NULL;
}

int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                          void* stream, void** parameters, void** extra) {
  const char* name = function;
  printf("%s grid %u %u %u block %u %u %u shared %u stream %d extra %d:", name, grid_x, grid_y,
         grid_z, block_x, block_y, block_z, shared, stream != NULL, extra != NULL);
  for (int i = 0; i < 3; ++i) printf(" %" PRIx64, *(uint64_t*)parameters[i]);
  puts("");
  fflush(stdout);
  return 0;
}
