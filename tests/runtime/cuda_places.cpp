// Where NVRTC and the disassembler are looked for, in folders made for it.
#include "runtime/cuda_places.h"

#include <map>

#include "dsl/error.h"
#include "runtime/disassembler.h"
#include "runtime/nvrtc.h"
#include "runtime/shared_library.h"
#include "tests/runtime/scratch_place.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

// A machine of files below a scratch folder.
struct Machine {
  ScratchPlace place{"größe a'b"};
  std::map<std::string, std::string> variables;

  std::string add(const std::string& file) {
    fs::create_directories((place / file).parent_path());
    write_text(place / file, "x");
    return (place / file).string();
  }
  SearchedMachine searched() const {
    return {[this](const char* name) {
              auto found = variables.find(name);
              return found == variables.end() ? nullptr : found->second.c_str();
            },
            place.str()};
  }
};

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("no error");
}

}  // namespace

TEST_CASE("NVRTC is looked for in the documented order", "[C54]") {
  Machine m;
  m.variables = {{"CUDA_HOME", m.place.str() + "/home cuda"},
                 {"CUDA_PATH", m.place.str() + "/path cuda"},
                 {"VIRTUAL_ENV", m.place.str() + "/venv"},
                 {"HOME", m.place.str() + "/user"},
                 {"CONDA_PREFIX", m.place.str() + "/conda"}};
  // Made in another order than they are to be found in.
  const std::string local = m.add("usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string system = m.add("usr/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string old_user = m.add("user/.local/lib/python3.9/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string user = m.add("user/.local/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string venv12 = m.add("venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string venv13 = m.add("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string toolkit = m.add("usr/local/cuda/targets/x86_64-linux/lib/libnvrtc.so.13");
  const std::string conda = m.add("conda/lib/libnvrtc.so.12");
  const std::string path = m.add("path cuda/lib64/libnvrtc.so.12");
  const std::string home13 = m.add("home cuda/lib64/libnvrtc.so.13");
  const std::string home12 = m.add("home cuda/lib64/libnvrtc.so.12");
  m.add("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so");  // not what is looked for
  const NvrtcPlaces places = nvrtc_places("", m.searched());
  CHECK(places.names == std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12", home13, home12, path, conda,
                                                 toolkit, venv13, venv12, user, old_user, system, local});
  CHECK(places.folders.front() == m.place.str() + "/home cuda/lib64");
  CHECK(nvrtc_places("/opt/libnvrtc.so", m.searched()).names == std::vector<std::string>{"/opt/libnvrtc.so"});
  CHECK(nvrtc_places("", Machine().searched()).names == std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12"});
}

TEST_CASE("the disassembler is looked for in the documented order") {
  Machine m;
  CHECK(find_disassembler(m.searched()).empty());
  m.variables = {{"PATH", m.place.str() + "/first::" + m.place.str() + "/second:"},
                 {"CUDA_HOME", m.place.str() + "/cuda"},
                 {"VIRTUAL_ENV", m.place.str() + "/venv"}};
  const auto program = [&](const std::string& file) {
    const std::string path = m.add(file);
    chmod(path.c_str(), 0755);
    return path;
  };
  m.add("first/nvdisasm");  // not executable
  CHECK(find_disassembler(m.searched()).empty());
  const std::string other = program("first/cuobjdump");
  CHECK(find_disassembler(m.searched()) == other);
  const std::string package = program("venv/lib/python3.12/site-packages/nvidia/cu13/bin/nvdisasm");
  CHECK(find_disassembler(m.searched()) == package);
  const std::string toolkit = program("cuda/bin/nvdisasm");
  CHECK(find_disassembler(m.searched()) == toolkit);
  const std::string second = program("second/nvdisasm");
  CHECK(find_disassembler(m.searched()) == second);
}

TEST_CASE("a library that is cut short is refused before the loader sees it", "[C54]") {
  const ScratchPlace place;
  const std::string whole = read_text(ATTILE_FAKE_CUDA "/libcuda.so.1");
  REQUIRE(whole.size() > 4096);
  const std::string path = (place / "libcut.so").string();
  for (std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{63}, std::size_t{100}, std::size_t{4096}}) {
    write_text(path, whole.substr(0, size));
    CHECK_FALSE(library_fault(path).empty());
    CHECK_THAT(open_library(path).fault, ContainsSubstring(path));
  }
  CHECK(library_fault(ATTILE_FAKE_CUDA "/libcuda.so.1").empty());
  CHECK_THAT(library_fault(place.str()), ContainsSubstring("no file"));
  CHECK_THAT(library_fault("/nowhere/x.so"), ContainsSubstring("No such file"));
  mkfifo((place / "pipe").c_str(), 0600);
  CHECK_FALSE(library_fault((place / "pipe").string()).empty());
}

TEST_CASE("ATTILE_NVRTC that names no compiler is told", "[C54]") {
  const ScratchPlace place;
  write_text(place / "text.so", "no library");
  for (const std::string& value : {std::string("/nowhere/libnvrtc.so.13"), (place / "text.so").string(),
                                   std::string(ATTILE_FAKE_CUDA "/libcuda.so.1")}) {
    const Error error = error_of([&] { find_nvrtc(nvrtc_places(value, this_machine())); });
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(), ContainsSubstring("ATTILE_NVRTC") && ContainsSubstring(value));
  }
}

TEST_CASE("without NVRTC every place looked in is told with the fix", "[C54]") {
  const Error error = error_of([] {
    find_nvrtc({{"libnvrtc-of-nobody.so.13", "/nowhere/libnvrtc.so.12"}, {"/nowhere", "/else/lib64"}});
  });
  CHECK(error.kind() == ErrorKind::environment);
  CHECK_THAT(error.what(), ContainsSubstring("/nowhere/libnvrtc.so.12: No such file") &&
                               ContainsSubstring("libnvrtc-of-nobody.so.13") &&
                               ContainsSubstring("looked in /nowhere, /else/lib64") &&
                               ContainsSubstring("pip install nvidia-cuda-nvrtc") && ContainsSubstring("ATTILE_NVRTC"));
}

TEST_CASE("NVRTC without its built-ins is passed over and told with the file that lacks", "[C54]") {
  const std::string file = ATTILE_FAKE_CUDA "/libnvrtc.so.99";
  const Error error = error_of([&] { find_nvrtc({{file}, {"/nowhere"}}); });
  CHECK(error.kind() == ErrorKind::environment);
  CHECK_THAT(error.what(), ContainsSubstring(file + " (version 99.9) lacks libnvrtc-builtins.so.99.9"));
}

TEST_CASE("without a disassembler the error names the packages") {
  const Machine m;
  const Error error = error_of([&] { disassemble("x", m.searched()); });
  CHECK(error.kind() == ErrorKind::environment);
  CHECK_THAT(error.what(), ContainsSubstring("nvidia-cuda-nvdisasm") && ContainsSubstring("nvidia-cuda-cuobjdump"));
}

TEST_CASE("a disassembler that fails is an error in its own words") {
  Machine m;
  m.variables = {{"PATH", m.place.str()}};
  const std::string program = m.add("nvdisasm");
  write_text(program, "#!/bin/sh\necho \"cannot read $2\"; exit 3\n");
  chmod(program.c_str(), 0755);
  const Error error = error_of([&] { disassemble("x", m.searched()); });
  CHECK(error.kind() == ErrorKind::internal);
  CHECK_THAT(error.what(), ContainsSubstring("cannot read ") && ContainsSubstring(".cubin"));
  write_text(program, "#!/bin/sh\ncat \"$2\"; echo; seq 1 100000\n");
  CHECK_THAT(disassemble("code of a kernel", m.searched()),
             ContainsSubstring("code of a kernel\n1\n") && ContainsSubstring("\n100000\n"));
  write_text(program, "no program");
  CHECK(error_of([&] { disassemble("x", m.searched()); }).kind() == ErrorKind::environment);
}
