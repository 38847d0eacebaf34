// Runs the built command without a shell, with a cache folder of its own, and holds what it said; writes .npy files
// byte by byte, so that the reader and the writer under test are not their own judges.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/runtime/scratch_place.h"

namespace attile::test {

struct Finished {
  int code = -1;  // minus the signal that ended it
  std::string out, err;
};

inline std::string text_of(const Finished& f) { return f.out + f.err; }

// Variables set to "" are unset. No GPU is seen: what these tests say holds on every machine.
Finished attile_command(const std::vector<std::string>& words,
                        const std::map<std::string, std::string>& environment = {});

// The same with the GPUs that this process may use.
Finished attile_on_gpu(const std::vector<std::string>& words);

// A version 1 file with this header dictionary and these data bytes.
std::string npy_bytes(const std::string& dictionary, const std::string& data, int version = 1);
std::string npy_floats(const std::vector<std::int64_t>& shape, const std::vector<float>& values);
// The float32 values of a version 1 file with exactly this dictionary start: "{'descr': '<f4', ...".
std::vector<float> floats_of(const std::string& bytes, const std::string& shape);

// A folder with small q.npy, k.npy and v.npy: [1][2][5][4], [1][2][7][4], [1][2][7][3].
class SmallInputs {
 public:
  SmallInputs();
  std::string path(const std::string& name) const { return (place_ / name).string(); }
  std::vector<std::string> run(std::vector<std::string> more = {}) const;

 private:
  ScratchPlace place_;
};

std::string data_path(const std::string& name);  // below tests/data/

}  // namespace attile::test
