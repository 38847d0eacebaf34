// NumPy's .npy files, format versions 1 and 2: float32, float16, bfloat16 (as ml_dtypes writes it), int32, int64 and
// bool, little-endian. Whatever is not exactly such a file is refused with the reason; nothing is guessed.
#pragma once

#include <string>
#include <string_view>

#include "cli/array.h"

namespace attile::cli {

// Row-major, also from a file in Fortran order. Throws Error(environment) when the file cannot be read and
// Error(argument), which names the file, when it is no such file, is cut short, or has bytes left over.
Array read_npy(const std::string& path);

// What stands before the data in a file that write_npy would write.
std::string npy_header(const Array& array);

// A header as found in a file, and what it says.
struct NpyHeader {
  DType dtype = DType::float32;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};
// `text` is the dictionary. Throws Error(argument) whose `where` is the file.
NpyHeader parse_npy_header(std::string_view text, const std::string& file);

}  // namespace attile::cli
