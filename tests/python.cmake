# The Python package: a wheel is built around this build's library and unpacked into python-site; then each file
# python/test_*.py runs by pytest, in the environment that tools/setup makes. Groups that need PyTorch, JAX or CuPy are files
# of their own and say when they did not run.
set(ATTILE_PYTHON ${PROJECT_SOURCE_DIR}/build/python/bin/python CACHE FILEPATH "Interpreter of the tests of the Python package")
set(site ${PROJECT_BINARY_DIR}/python-site)
set(run ${CMAKE_CURRENT_SOURCE_DIR}/python/run ${ATTILE_PYTHON} ${site})
if(ATTILE_SANITIZE OR NOT TARGET attile_llvm)
  set(run ${CMAKE_COMMAND} -E echo "test-skipped: the Python package, with a sanitizer or without the CPU back end")
endif()

add_test(NAME "python/a wheel is built and unpacked"
         COMMAND ${run} -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index --upgrade
                 --target ${site} --config-settings build-dir=${PROJECT_BINARY_DIR}/python-wheel-{wheel_tag} --config-settings cmake.define.ATTILE_BUILD=${PROJECT_BINARY_DIR}
                 ${PROJECT_SOURCE_DIR})
set_tests_properties("python/a wheel is built and unpacked" PROPERTIES LABELS cpu FIXTURES_SETUP python_site TIMEOUT 900
                     SKIP_REGULAR_EXPRESSION "test-skipped: ")

file(GLOB files CONFIGURE_DEPENDS python/test_*.py)
foreach(file IN LISTS files)
  cmake_path(GET file STEM name)
  set(tier cpu)
  set(seconds 900)
  if(name MATCHES "^test_gpu")
    set(tier gpu)
    set(seconds 1800)
  endif()
  string(REGEX REPLACE "^test_" "" name ${name})
  add_test(NAME python/${name} COMMAND ${run} -m pytest -q -p no:cacheprovider ${file})
  set_tests_properties(python/${name} PROPERTIES LABELS ${tier} TIMEOUT ${seconds} SKIP_REGULAR_EXPRESSION "test-skipped: "
                       FIXTURES_REQUIRED "python_site;fresh_cache" ENVIRONMENT ATTILE_CACHE_DIR=${test_cache})
endforeach()
