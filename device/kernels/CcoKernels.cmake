# cco_add_kernels(<module> <source> [HOST_SOURCES ...] [FLAGS ...]): static library
# cco_kernels_<module>, with
#   const cco::KernelModule& cco::kernels::<module>()
# holding the source compiled for the host, for sm_90 (and as PTX for what comes after) and for every
# target of CCO_AMD_ARCHS. FLAGS go to all compilers. The table of host functions (CCO_KERNEL_TABLE) is
# in the source or in HOST_SOURCES. No vendor header or library is needed: nvcc (12.8 or newer)
# and clang++-22 suffice, and what is missing is left out unless asked for by CCO_CUDA=ON or CCO_AMD=ON.

# nvcc always includes cuda_runtime.h first. Ours is empty, so kernels cannot come to depend on it.
set(no_cuda ${CMAKE_CURRENT_BINARY_DIR}/no_cuda)
file(WRITE ${no_cuda}/cuda_runtime.h "")
get_filename_component(source_root ${CMAKE_CURRENT_SOURCE_DIR}/../.. ABSOLUTE)
set(kernel_includes -I${source_root}/device/include -I${source_root})
set(CCO_NVCC_FLAGS -x cu -std=c++20 -O3 -ccbin ${CMAKE_CXX_COMPILER} -I${no_cuda} ${kernel_includes}
    CACHE INTERNAL "")
set(CCO_AMD_FLAGS -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -O3 -std=c++20
    -mcode-object-version=5 -Wall -Wextra -Wundef -Werror ${kernel_includes} CACHE INTERNAL "")

# Sets `result` to the compiler if it can compile a kernel, else to "" or, when required, stops.
function(find_kernel_compiler result mode label compiler)
  set(${result} "" CACHE INTERNAL "")
  if(mode STREQUAL "OFF")
    return()
  endif()
  set(problem "not found")
  if(compiler)
    set(probe ${CMAKE_CURRENT_BINARY_DIR}/probe_${label})
    file(WRITE ${probe}.cc "#include \"cco/device.hpp\"\nCCO_KERNEL void probe() { cco::device::publish_system(); }\n")
    execute_process(COMMAND ${compiler} ${ARGN} -o ${probe}.out ${probe}.cc
                    RESULT_VARIABLE failed OUTPUT_VARIABLE problem ERROR_VARIABLE problem)
    if(failed EQUAL 0)
      message(STATUS "${label} kernels: ${compiler}")
      set(${result} ${compiler} CACHE INTERNAL "")
      return()
    endif()
    string(PREPEND problem "${failed} ")
  endif()
  if(mode STREQUAL "ON")
    message(FATAL_ERROR "CCO_${label}=ON, but no kernel compiles with '${compiler}': ${problem}")
  endif()
  message(STATUS "${label} kernels: left out, '${compiler}' does not compile them: ${problem}")
endfunction()

# nvcc: named by -DCMAKE_CUDA_COMPILER or $NVCC (then it must work), else searched for, also where the
# PyPI packages put it.
set(cuda_mode ${CCO_CUDA})
if(CMAKE_CUDA_COMPILER)
  set(nvcc ${CMAKE_CUDA_COMPILER})
elseif(DEFINED ENV{NVCC})
  set(nvcc $ENV{NVCC})
else()
  execute_process(COMMAND python3 -c "import nvidia; print(*nvidia.__path__, sep=';')"
                  OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(TRANSFORM packages APPEND /cu13/bin)
  find_program(CCO_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin ${packages})
  set(nvcc ${CCO_NVCC})
endif()
if((CMAKE_CUDA_COMPILER OR DEFINED ENV{NVCC}) AND cuda_mode STREQUAL "AUTO")
  set(cuda_mode ON)
endif()
find_kernel_compiler(CCO_NVCC_FOUND ${cuda_mode} CUDA "${nvcc}" ${CCO_NVCC_FLAGS} -arch=sm_90 -cubin)

find_program(CCO_AMD_CLANG clang++-22)
list(GET CCO_AMD_ARCHS 0 first_arch)
find_kernel_compiler(CCO_AMD_CLANG_FOUND ${CCO_AMD} AMD "${CCO_AMD_CLANG}" ${CCO_AMD_FLAGS}
                     --offload-arch=${first_arch})

# Compiles one image and embeds it; appends to `images` and `embed` of the caller.
macro(add_image arch output)
  set(symbol cco_image_${module}_${arch})
  add_custom_command(OUTPUT ${output} COMMAND ${ARGN} ${extra_FLAGS} -o ${output} ${source}
                     DEPENDS ${source} DEPFILE ${output}.d VERBATIM
                     COMMENT "Compiling kernels ${module} for ${arch}")
  list(APPEND images ${output})
  string(APPEND embed ".globl ${symbol}\n.hidden ${symbol}\n.balign 4096\n${symbol}:\n"
         ".incbin \"${output}\"\n.globl ${symbol}_end\n.hidden ${symbol}_end\n${symbol}_end:\n.byte 0\n")
  string(APPEND declarations "extern const uint8_t ${symbol}[], ${symbol}_end[];\n")
  string(APPEND entries "      {\"${arch}\", span_of(${symbol}, ${symbol}_end)},\n")
endmacro()

function(cco_add_kernels module source)
  cmake_parse_arguments(extra "" "" "HOST_SOURCES;FLAGS" ${ARGN})
  get_filename_component(source ${source} ABSOLUTE)
  set(base ${CMAKE_CURRENT_BINARY_DIR}/${module})
  set(images "")
  set(entries "")
  set(declarations "")
  set(embed ".section .rodata\n")
  if(CCO_NVCC_FOUND)
    set(out ${base}.sm_90.cubin)
    add_image(sm_90 ${out} ${CCO_NVCC_FOUND} ${CCO_NVCC_FLAGS} -arch=sm_90 -cubin -MD -MF ${out}.d -MT ${out})
    set(out ${base}.ptx)
    add_image(ptx ${out} ${CCO_NVCC_FOUND} ${CCO_NVCC_FLAGS} -arch=compute_90 -ptx -MD -MF ${out}.d -MT ${out})
  endif()
  if(CCO_AMD_CLANG_FOUND)
    foreach(arch IN LISTS CCO_AMD_ARCHS)
      set(out ${base}.${arch}.co)  # The driver ignores -MF when it links, hence -Xclang.
      add_image(${arch} ${out} ${CCO_AMD_CLANG_FOUND} ${CCO_AMD_FLAGS} --offload-arch=${arch}
                -Xclang -dependency-file -Xclang ${out}.d -Xclang -MT -Xclang ${out})
    endforeach()
  endif()
  string(APPEND embed ".section .note.GNU-stack,\"\",@progbits\n")
  file(GENERATE OUTPUT ${base}_images.S CONTENT "${embed}")
  set_source_files_properties(${base}_images.S PROPERTIES OBJECT_DEPENDS "${images}")
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/module.cc.in ${base}_module.cc @ONLY)

  add_library(cco_kernels_${module} STATIC ${source} ${extra_HOST_SOURCES} ${base}_module.cc ${base}_images.S)
  target_link_libraries(cco_kernels_${module} PUBLIC cco_device Threads::Threads)
  set_target_properties(cco_kernels_${module} PROPERTIES KERNEL_IMAGES "${images}")
  set(host_flags ${extra_FLAGS})
  if(NOT CCO_SANITIZE)
    list(APPEND host_flags -O3)  # Copy loops, also in debug builds.
  endif()
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${host_flags}")
endfunction()
