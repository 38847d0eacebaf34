# attile_embed(<target> <folder> FUNCTION <name> HEADER <header> PATTERNS <pattern>...)
# Adds a generated source to <target> that defines attile::embedded::<name>(), declared in <header>: the table of all
# files below <folder> that match. A path in it is relative to <folder>.
function(attile_embed target folder)
  cmake_parse_arguments(arg "" "FUNCTION;HEADER" "PATTERNS" ${ARGN})
  list(TRANSFORM arg_PATTERNS PREPEND ${PROJECT_SOURCE_DIR}/${folder}/)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${arg_PATTERNS})
  set(output ${PROJECT_BINARY_DIR}/embedded/${arg_FUNCTION}.cpp)
  list(JOIN files "\n" list)
  file(CONFIGURE OUTPUT ${output}.list CONTENT "${list}\n")  # a removed file, too, makes the table stale
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D FUNCTION=${arg_FUNCTION} -D HEADER=${arg_HEADER}
            -D BASE=${PROJECT_SOURCE_DIR}/${folder} -D LIST=${output}.list -D OUTPUT=${output} -P ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    DEPENDS ${files} ${output}.list ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    COMMENT "Embedding ${folder}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
