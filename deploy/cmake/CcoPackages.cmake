# The libraries this project stands on, as Debian 12 and Ubuntu 24.04 package them.
#
# cco::absl  Abseil (static archives: small, and the same code in a shared and in a static build)
# cco::grpc  gRPC and Protobuf for libcco_client: the shared ones
# cco::grpc_tools  for cco-memd and the tools: static with CCO_STATIC, so that one file runs on any node
# cco::log   spdlog, header-only (there is no static archive)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_program(CCO_PROTOC protoc REQUIRED)
find_program(CCO_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

# `pkg-config --static` walks Abseil's graph for 13 s and misses c-ares, hence a fixed list.
find_library(grpcpp_archive libgrpc++_unsecure.a REQUIRED)
get_filename_component(archive_dir ${grpcpp_archive} DIRECTORY)
file(GLOB absl_archives ${archive_dir}/libabsl_*.a)
set(grpc_archives "")
foreach(name IN ITEMS grpc++_unsecure grpc_unsecure gpr address_sorting upb re2 cares z protobuf)
  list(APPEND grpc_archives ${archive_dir}/lib${name}.a)
endforeach()

add_library(cco_grpc_static INTERFACE)
target_link_libraries(cco_grpc_static INTERFACE
  -Wl,--start-group ${grpc_archives} ${absl_archives} -Wl,--end-group Threads::Threads)
target_link_options(cco_grpc_static INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)

add_library(cco_grpc_shared INTERFACE)
file(GLOB absl_shared ${archive_dir}/libabsl_*.so)
target_link_libraries(cco_grpc_shared INTERFACE grpc++_unsecure grpc_unsecure gpr protobuf -Wl,--as-needed ${absl_shared} Threads::Threads)

add_library(cco_log INTERFACE)
target_compile_definitions(cco_log INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
target_link_libraries(cco_log INTERFACE fmt::fmt-header-only)
add_library(cco::log ALIAS cco_log)

# Archives of our own code name neither flavour; the final link does, once.
if(CCO_STATIC)
  add_library(cco::grpc_tools ALIAS cco_grpc_static)
else()
  add_library(cco::grpc_tools ALIAS cco_grpc_shared)
endif()
