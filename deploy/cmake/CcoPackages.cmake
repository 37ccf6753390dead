# The libraries this project stands on, as Debian 12 and Ubuntu 24.04 package them.
#
# cco::grpc_tools   gRPC, Protobuf and Abseil for cco-memd and ccoctl: static with CCO_STATIC
# cco::absl_tools   Abseil alone, likewise
# cco_grpc_shared, cco_grpc_static  the same by name, for libcco_client.so: see client/src
# cco::sqlite       SQLite and zlib (checksums), for what cco-memd keeps on disk: static with CCO_STATIC
# cco::log          spdlog, header-only (there is no static archive)
# Archives of our own code name neither flavour; the final link does, once.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_program(CCO_PROTOC protoc REQUIRED)
find_program(CCO_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
find_path(CCO_GRPC_INCLUDE grpcpp/grpcpp.h)
if(NOT CCO_GRPC_INCLUDE)
  message(FATAL_ERROR "grpcpp/grpcpp.h is not there: run deploy/install-packages (libgrpc++-dev)")
endif()

# `pkg-config --static` walks Abseil's graph for 13 s and misses c-ares, hence a fixed list, with the package of each.
set(archives
  grpc++_unsecure libgrpc++-dev  grpc_unsecure libgrpc-dev  gpr libgrpc-dev  address_sorting libgrpc-dev
  upb libgrpc-dev  re2 libre2-dev  cares libc-ares-dev  z zlib1g-dev  protobuf libprotobuf-dev  absl_base libabsl-dev)
set(grpc_archives "")
set(missing_archives "")
while(archives)
  list(POP_FRONT archives name package)
  find_library(CCO_ARCHIVE_${name} lib${name}.a)
  mark_as_advanced(CCO_ARCHIVE_${name})
  if(CCO_ARCHIVE_${name})
    list(APPEND grpc_archives ${CCO_ARCHIVE_${name}})
  else()
    list(APPEND missing_archives "lib${name}.a (package ${package})")
  endif()
endwhile()
if(missing_archives AND (CCO_STATIC OR CCO_SELF_CONTAINED))
  list(JOIN missing_archives ", " missing_archives)
  message(FATAL_ERROR "CCO_STATIC or CCO_SELF_CONTAINED needs static archives that are not there: ${missing_archives}. "
    "Install the packages (deploy/install-packages does), or configure with -DCCO_STATIC=OFF -DCCO_SELF_CONTAINED=OFF.")
endif()
if(NOT missing_archives)
  get_filename_component(absl_folder ${CCO_ARCHIVE_absl_base} DIRECTORY)
  file(GLOB absl_archives ${absl_folder}/libabsl_*.a)
endif()

add_library(cco_grpc_static INTERFACE)
target_link_libraries(cco_grpc_static INTERFACE
  -Wl,--start-group ${grpc_archives} ${absl_archives} -Wl,--end-group Threads::Threads)
target_link_options(cco_grpc_static INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
add_library(cco_absl_static INTERFACE)
target_link_libraries(cco_absl_static INTERFACE -Wl,--start-group ${absl_archives} -Wl,--end-group Threads::Threads)
target_link_options(cco_absl_static INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)

find_library(CCO_ABSL_BASE_SHARED libabsl_base.so REQUIRED)
get_filename_component(absl_folder ${CCO_ABSL_BASE_SHARED} DIRECTORY)
file(GLOB absl_shared ${absl_folder}/libabsl_*.so)
add_library(cco_grpc_shared INTERFACE)
target_link_libraries(cco_grpc_shared INTERFACE
  grpc++_unsecure grpc_unsecure gpr protobuf -Wl,--as-needed ${absl_shared} Threads::Threads)
add_library(cco_absl_shared INTERFACE)
target_link_libraries(cco_absl_shared INTERFACE -Wl,--as-needed ${absl_shared} Threads::Threads)

add_library(cco_log INTERFACE)
target_compile_definitions(cco_log INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
target_link_libraries(cco_log INTERFACE fmt::fmt-header-only)
add_library(cco::log ALIAS cco_log)

if(CCO_STATIC)
  add_library(cco::grpc_tools ALIAS cco_grpc_static)
  add_library(cco::absl_tools ALIAS cco_absl_static)
else()
  add_library(cco::grpc_tools ALIAS cco_grpc_shared)
  add_library(cco::absl_tools ALIAS cco_absl_shared)
endif()

find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
add_library(cco_sqlite INTERFACE)
add_library(cco::sqlite ALIAS cco_sqlite)
if(CCO_STATIC)
  find_library(CCO_ARCHIVE_sqlite3 libsqlite3.a)
  mark_as_advanced(CCO_ARCHIVE_sqlite3)
  if(NOT CCO_ARCHIVE_sqlite3)
    message(FATAL_ERROR "CCO_STATIC needs libsqlite3.a (package libsqlite3-dev), which is not there. Install it "
      "(deploy/install-packages does), or configure with -DCCO_STATIC=OFF.")
  endif()
  target_link_libraries(cco_sqlite INTERFACE
    ${CCO_ARCHIVE_sqlite3} ${CCO_ARCHIVE_z} m ${CMAKE_DL_LIBS} Threads::Threads)
else()
  target_link_libraries(cco_sqlite INTERFACE SQLite::SQLite3 ZLIB::ZLIB)
endif()
