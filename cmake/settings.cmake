# How everything is compiled and linked.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# {.causal = true} is meant to leave the other fields at their defaults; a local may be named like the global `key`.
add_compile_options(-Wall -Wextra -Wpedantic "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>" -Wcast-qual
                    $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> -Wno-missing-field-initializers
                    -ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections -Wl,--as-needed)

set(ATTILE_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize=: address,undefined or thread")
if(ATTILE_SANITIZE)
  add_compile_options(-fsanitize=${ATTILE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ATTILE_SANITIZE})
else()
  add_link_options(-Wl,--no-undefined)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/ccache.cmake)

find_program(MOLD mold)
if(MOLD)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold ATTILE_COMPILER_TAKES_MOLD)
  if(ATTILE_COMPILER_TAKES_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()
