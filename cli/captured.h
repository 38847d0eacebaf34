// The tensors beside q, k and v from what the flags say: a list of numbers, an .npy file, or generated. Types are
// those of AttentionCall. Every error is an Error(argument) that names the flag or the file.
#pragma once

#include <string>
#include <vector>

#include "cli/array.h"

namespace attile::cli {

// int32 from a list ([n]) or a file of int32 or int64.
Array read_integers(const std::string& text, const std::string& flag);
// float32; `shape` is that of "random".
Array read_reals(const std::string& text, const std::string& flag, const std::vector<std::int64_t>& shape);
// Any float type from a file, else float32.
Array read_bias(const std::string& text, const std::vector<std::int64_t>& shape);
// "random" hides one key in ten.
Array read_mask(const std::string& text, const std::vector<std::int64_t>& shape);

// In [from, to].
Array random_integers(const std::vector<std::int64_t>& shape, std::int64_t from, std::int64_t to,
                      const std::string& name);
// Documents of about 64 positions, numbered from 0.
Array random_documents(std::int64_t batch, std::int64_t positions);
// 2^(-8(h+1)/H): Press et al. 2022 for H a power of two.
Array standard_slopes(std::int64_t heads);

}  // namespace attile::cli
