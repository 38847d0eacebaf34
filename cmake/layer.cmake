# attile_layer(<folder> [BELOW <folder>] [LINK <target>...])
# The static library attile_<folder> from <folder>/**/*.cpp. Includes are written from the root ("dsl/expr.h") and go
# through build/layers/<folder>, which holds nothing but a link to that folder and comes with linking the library:
# a layer sees itself and what is below it, so an upward include does not build. The headers that most sources need are
# read once, for the lowest layer; a source includes what it uses all the same.
function(attile_layer folder)
  cmake_parse_arguments(arg "" "BELOW" "LINK" ${ARGN})

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/runtime/llvm/|/cli/main\\.cpp$")  # the LLVM module and the program
  if(NOT sources)
    file(CONFIGURE OUTPUT layers/${folder}.cpp CONTENT "// ${folder}/ has no source file yet.\n")
    set(sources ${PROJECT_BINARY_DIR}/layers/${folder}.cpp)
  endif()

  add_library(attile_${folder} STATIC ${sources})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/layers/${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/layers/${folder}/${folder} SYMBOLIC)
  target_include_directories(attile_${folder} PUBLIC ${PROJECT_BINARY_DIR}/layers/${folder})
  target_compile_definitions(attile_${folder} PRIVATE ATTILE_VERSION="${PROJECT_VERSION}")
  target_link_libraries(attile_${folder} PRIVATE fmt::fmt xxhash::xxhash ${arg_LINK})
  if(arg_BELOW)
    target_link_libraries(attile_${folder} PUBLIC attile_${arg_BELOW})
    target_precompile_headers(attile_${folder} REUSE_FROM attile_dsl)
  else()
    target_precompile_headers(attile_${folder} PRIVATE <algorithm> <cstdint> <fmt/format.h> <functional> <map> <memory>
                                                       <optional> <set> <span> <string> <string_view> <vector>)
  endif()
endfunction()
