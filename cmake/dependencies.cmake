# What Attile is built with. All of it is private: no public header and no installed package file names any of it.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

find_package(yaml-cpp REQUIRED)
if(NOT TARGET yaml-cpp::yaml-cpp)  # before 0.8
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(xxhash::xxhash UNKNOWN IMPORTED)
set_target_properties(xxhash::xxhash PROPERTIES IMPORTED_LOCATION ${XXHASH_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${XXHASH_INCLUDE_DIR})

# LLVM 16 to 20 and 22. Its version file accepts only an equal major.minor, so each release is asked for by name.
set(ATTILE_LLVM AUTO CACHE STRING "Build the CPU back end: ON (LLVM is required), OFF, or AUTO (if LLVM is found)")
set_property(CACHE ATTILE_LLVM PROPERTY STRINGS AUTO ON OFF)
if(ATTILE_LLVM)
  if(LLVM_DIR OR LLVM_ROOT)  # the user's choice
    find_package(LLVM CONFIG)
  endif()
  foreach(version 19.1 20.1 18.1 17.0 16.0 22.1)
    if(NOT LLVM_FOUND)
      find_package(LLVM ${version} CONFIG QUIET)
    endif()
  endforeach()
  if(LLVM_FOUND AND LLVM_VERSION_MAJOR LESS 16)
    message(FATAL_ERROR "LLVM ${LLVM_VERSION} in ${LLVM_DIR} is too old: Attile needs 16 or newer")
  elseif(LLVM_FOUND)
    message(STATUS "LLVM ${LLVM_VERSION} in ${LLVM_DIR}")
  elseif(ATTILE_LLVM STREQUAL AUTO)
    message(WARNING "No LLVM found: Attile is built without its CPU back end. Install llvm-19-dev or set LLVM_DIR.")
  else()
    message(FATAL_ERROR "No LLVM found: install llvm-19-dev, set LLVM_DIR, or leave the CPU back end out "
                        "with -DATTILE_LLVM=OFF")
  endif()
endif()
