# The module libattile_llvm.so: LLVM's x86 back end and JIT linker behind the C functions of runtime/llvm/llvm_abi.h.
# LLVM is inside it and hidden, so it lives beside any other LLVM of the process. The library opens it at the first
# compile for the CPU, from attile/ beside itself.

set(ATTILE_LLVM_COMPONENTS orcjit x86codegen x86asmparser asmparser irreader instcombine scalaropts)

file(GLOB sources CONFIGURE_DEPENDS runtime/llvm/*.cpp)
if(NOT LLVM_FOUND OR NOT sources)
  return()
endif()

add_library(attile_llvm MODULE ${sources})
set_target_properties(attile_llvm PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/attile
                                             LINK_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/llvm/exports.map)
target_include_directories(attile_llvm PRIVATE ${PROJECT_BINARY_DIR}/layers/runtime)
target_include_directories(attile_llvm SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
separate_arguments(definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_definitions(attile_llvm PRIVATE ${definitions})
target_compile_options(attile_llvm PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # in LLVM's headers
if(NOT LLVM_ENABLE_RTTI)
  target_compile_options(attile_llvm PRIVATE -fno-rtti)
endif()

if(TARGET LLVMOrcJIT)
  llvm_map_components_to_libnames(libraries ${ATTILE_LLVM_COMPONENTS})
else()
  message(WARNING "LLVM ${LLVM_VERSION} has no static libraries: the CPU back end uses the shared libLLVM, "
                  "which can clash with another LLVM in the same process")
  set(libraries LLVM)
endif()
target_link_libraries(attile_llvm PRIVATE ${libraries})
target_link_options(attile_llvm PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,nodelete
                    -Wl,--version-script=${PROJECT_SOURCE_DIR}/runtime/llvm/exports.map)
if(NOT ATTILE_SANITIZE)
  target_link_options(attile_llvm PRIVATE -static-libstdc++ -static-libgcc)
endif()

add_dependencies(attile attile_llvm)
install(TARGETS attile_llvm DESTINATION ${CMAKE_INSTALL_LIBDIR}/attile)
