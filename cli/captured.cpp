#include "cli/captured.h"

#include <algorithm>
#include <cmath>

#include "cli/attention_flags.h"
#include "cli/npy.h"
#include "dsl/error.h"

namespace attile::cli {
namespace {

bool is_list(const std::string& text) {
  if (text == "inf" || text == "-inf") return true;
  return text.find_first_not_of("0123456789.,+-eE []inf") == std::string::npos &&
         text.find_first_of("0123456789") != std::string::npos;
}

Array file_of(const std::string& text, const std::string& flag) {
  if (text == "random")
    throw Error(ErrorKind::argument, flag, "nothing can be generated for this flag", "give a list or a file");
  return read_npy(text);
}

Array list_of(const std::vector<double>& values, DType dtype) {
  Array array(dtype, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) array.set(static_cast<std::int64_t>(i), values[i]);
  return array;
}

}  // namespace

Array read_integers(const std::string& text, const std::string& flag) {
  if (!is_list(text)) return converted(file_of(text, flag), DType::int32, text);
  const std::vector<std::int64_t> values = parse_integers(text, flag);
  return list_of({values.begin(), values.end()}, DType::int32);
}

Array read_reals(const std::string& text, const std::string& flag, const std::vector<std::int64_t>& shape) {
  if (is_list(text)) return list_of(parse_numbers(text, flag), DType::float32);
  if (text != "random" || flag != "--sink") return converted(file_of(text, flag), DType::float32, text);
  Array array(DType::float32, shape);
  fill_random(array, flag);
  return array;
}

Array read_bias(const std::string& text, const std::vector<std::int64_t>& shape) {
  if (text != "random") return read_npy(text);
  Array array(DType::float32, shape);
  fill_random(array, "bias");
  return array;
}

Array read_mask(const std::string& text, const std::vector<std::int64_t>& shape) {
  if (text != "random") {
    Array array = read_npy(text);
    if (array.dtype() != DType::boolean)
      throw Error(ErrorKind::argument, text, "a mask holds bool", "save it with .astype(bool)");
    return array;
  }
  Array array(DType::boolean, shape);
  const std::vector<double> units = random_units(array.count(), "mask");
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, units[static_cast<std::size_t>(i)] < 0.9 ? 1 : 0);
  return array;
}

Array random_integers(const std::vector<std::int64_t>& shape, std::int64_t from, std::int64_t to,
                      const std::string& name) {
  Array array(DType::int32, shape);
  const std::vector<double> units = random_units(array.count(), name);
  for (std::int64_t i = 0; i < array.count(); ++i) {
    const double drawn =
        static_cast<double>(from) + std::floor(units[static_cast<std::size_t>(i)] * static_cast<double>(to - from + 1));
    array.set(i, std::clamp(drawn, static_cast<double>(std::min(from, to)), static_cast<double>(to)));
  }
  return array;
}

Array random_documents(std::int64_t batch, std::int64_t positions) {
  Array array(DType::int32, {batch, positions});
  const std::vector<double> units = random_units(array.count(), "doc_ids");
  double document = 0;
  for (std::int64_t i = 0; i < array.count(); ++i) {
    if (i % std::max<std::int64_t>(positions, 1) == 0) document = 0;
    if (units[static_cast<std::size_t>(i)] < 1.0 / 64) ++document;
    array.set(i, document);
  }
  return array;
}

Array standard_slopes(std::int64_t heads) {
  Array array(DType::float32, {heads});
  for (std::int64_t h = 0; h < heads; ++h)
    array.set(h, std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads)));
  return array;
}

}  // namespace attile::cli
