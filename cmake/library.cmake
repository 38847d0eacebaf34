# The shared library attile: all layers, hidden but for what ATTILE_API marks, and its package files.

set(folders dsl schedules codegen runtime autotune)
list(TRANSFORM folders REPLACE "(.+)" "$<TARGET_OBJECTS:attile_\\1>" OUTPUT_VARIABLE objects)
add_library(attile SHARED ${objects})
add_library(attile::attile ALIAS attile)
target_link_libraries(attile PRIVATE attile_autotune)  # for what the layers link; their objects are there already
set_target_properties(attile PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
                                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
target_compile_features(attile INTERFACE cxx_std_20)

# <attile/attile.h> for users, <attile/attile_c.h> for C; the public headers include each other from the root ("dsl/expr.h").
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/attile)
foreach(name attile.h ${folders})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${name} ${PROJECT_BINARY_DIR}/include/attile/${name} SYMBOLIC)
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/runtime/attile_c.h ${PROJECT_BINARY_DIR}/include/attile/attile_c.h SYMBOLIC)
target_include_directories(attile INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include/attile>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/attile>)

set(CMAKE_INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attile)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(attileConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS attile EXPORT attile)
install(EXPORT attile NAMESPACE attile:: FILE attileConfig.cmake DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/attileConfigVersion.cmake DESTINATION ${package_dir})
install(FILES attile.h runtime/attile_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attile)
foreach(folder IN LISTS folders)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attile/${folder})
endforeach()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
