#include "runtime/files.h"

#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using attile::test::ScratchPlace;

TEST_CASE("a temporary file lies in TMPDIR, is new each time and holds what it is given") {
  const ScratchPlace place;
  const char* before = std::getenv("TMPDIR");
  const std::string old = before ? before : "";
  setenv("TMPDIR", place.str().c_str(), 1);
  std::string first, second, nowhere;
  CHECK(write_temporary(".cu", "text", first) == 0);
  CHECK(write_temporary(".cu", "", second) == 0);
  setenv("TMPDIR", "/nowhere", 1);
  CHECK(write_temporary(".ll", "text", nowhere) == ENOENT);
  before ? setenv("TMPDIR", old.c_str(), 1) : unsetenv("TMPDIR");

  CHECK(first.starts_with(place.str() + "/attile-"));
  CHECK(first.ends_with(".cu"));
  CHECK(second != first);
  std::ifstream file(first);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "text");
  CHECK(attile::test::fs::file_size(second) == 0);
}
