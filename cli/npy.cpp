#include "cli/npy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "dsl/error.h"

namespace attile::cli {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t longest_header = 1 << 16;

struct Descr {
  std::string_view text;
  DType dtype;
};
// The first of a type is what is written. ml_dtypes has no code of its own for bfloat16: it is a two-byte void.
constexpr std::array<Descr, 8> descrs{{{"<f4", DType::float32},
                                       {"<f2", DType::float16},
                                       {"<V2", DType::bfloat16},
                                       {"|V2", DType::bfloat16},
                                       {"bfloat16", DType::bfloat16},
                                       {"<i4", DType::int32},
                                       {"<i8", DType::int64},
                                       {"|b1", DType::boolean}}};

[[noreturn]] void refuse(const std::string& file, const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorKind::argument, file, what, remedy);
}

// The literal that NumPy writes: a Python dictionary of texts, booleans and a tuple of integers.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  NpyHeader run() {
    expect('{');
    while (!accept('}')) {
      const std::string key(quoted());
      if (!seen_.insert(key).second) refuse(file_, fmt::format("the header names '{}' twice", key));
      expect(':');
      read_value(key);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("the end of the header");
    for (const char* key : {"descr", "fortran_order", "shape"})
      if (!seen_.contains(key)) refuse(file_, fmt::format("the header has no '{}'", key));
    return header_;
  }

 private:
  void read_value(const std::string& key) {
    if (key == "descr") return read_descr();
    if (key == "fortran_order") return read_order();
    if (key == "shape") return read_shape();
    refuse(file_, fmt::format("the header has an unknown key '{}'", key));
  }

  void read_descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') refuse(file_, "it holds records, not plain numbers", "save one field");
    const std::string_view descr = quoted();
    for (const Descr& known : descrs)
      if (known.text == descr) {
        header_.dtype = known.dtype;
        return;
      }
    refuse(file_, fmt::format("the element type '{}' is not supported", descr),
           "known are float32, float16, bfloat16, int32, int64 and bool, little-endian; convert with "
           ".astype(numpy.float32)");
  }

  void read_order() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      header_.fortran_order = value;
      return;
    }
    fail("True or False");
  }

  void read_shape() {
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t extent = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error == std::errc::result_out_of_range) refuse(file_, "the header's shape is larger than any tensor can be");
      if (error != std::errc() || extent < 0) fail("an extent that is not negative");
      at_ = static_cast<std::size_t>(end - text_.data());
      header_.shape.push_back(extent);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    if (header_.shape.size() > TensorRef::max_rank)
      refuse(file_,
             fmt::format("it has {} dims, more than the {} possible", header_.shape.size(), TensorRef::max_rank));
  }

  std::string_view quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail("a text in quotes");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char letter) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  void expect(char letter) {
    if (!accept(letter)) fail(fmt::format("'{}'", letter));
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    refuse(file_, fmt::format("its header is no valid .npy header: {} is expected at byte {}", wanted, at_));
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::set<std::string> seen_;
  NpyHeader header_;
};

// Reads in order and knows the file's size where it has one.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rbe"), &std::fclose) {
    struct stat status {};
    if (!file_ || fstat(fileno(file_.get()), &status) != 0) unreadable(errno);
    if (S_ISDIR(status.st_mode)) unreadable(EISDIR);
    if (S_ISREG(status.st_mode)) size_ = status.st_size;
  }

  void read(void* to, std::size_t bytes, const char* part) {
    const std::size_t got = bytes == 0 ? 0 : std::fread(to, 1, bytes, file_.get());
    position_ += static_cast<std::int64_t>(got);
    if (got == bytes) return;
    if (std::ferror(file_.get())) unreadable(errno);
    refuse(path_, fmt::format("it is cut short: {} needs {} bytes and {} are there", part, bytes, got));
  }
  // Before memory is taken for them, so that a header cannot ask for more than the file has.
  void expect_rest(std::size_t bytes) const {
    if (size_ < 0) return;
    const std::int64_t rest = size_ - position_;
    if (rest < static_cast<std::int64_t>(bytes))
      refuse(path_, fmt::format("it is cut short: its shape needs {} bytes of data and {} are there", bytes, rest));
    if (rest > static_cast<std::int64_t>(bytes)) left_over();
  }
  void expect_end() {
    if (std::fgetc(file_.get()) != EOF) left_over();
    if (std::ferror(file_.get())) unreadable(errno);
  }

 private:
  [[noreturn]] void left_over() const {
    refuse(path_, "bytes are left over after its data", "is it more than one array?");
  }
  [[noreturn]] void unreadable(int error) const {
    throw Error(ErrorKind::environment, path_, fmt::format("the file cannot be read: {}", std::strerror(error)));
  }

  const std::string& path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::int64_t size_ = -1, position_ = 0;
};

NpyHeader read_header(Input& input, const std::string& path) {
  std::array<unsigned char, 12> start{};
  input.read(start.data(), 8, "the start of an .npy file");
  if (std::memcmp(start.data(), magic.data(), magic.size()) != 0)
    refuse(path, "it is no .npy file (the first bytes are not \\x93NUMPY)", "write it with numpy.save");
  const int version = start[6];
  if ((version != 1 && version != 2) || start[7] != 0)
    refuse(path, fmt::format("its .npy format version {}.{} is not known", version, start[7]),
           "versions 1.0 and 2.0 are");
  input.read(start.data() + 8, version == 1 ? 2 : 4, "the length of the header");
  std::size_t length = start[8] | std::size_t{start[9]} << 8;
  if (version == 2) length |= std::size_t{start[10]} << 16 | std::size_t{start[11]} << 24;
  if (length > longest_header)
    refuse(path, fmt::format("its header claims {} bytes, more than a header can need", length));
  std::string text(length, '\0');
  input.read(text.data(), length, "the header");
  return parse_npy_header(text, path);
}

// Element number i of the row-major order lies at `offset` when the first dim varies fastest.
Array from_fortran(const Array& found, const std::vector<std::int64_t>& shape) {
  Array out(found.dtype(), shape);
  const std::size_t size = size_of(found.dtype());
  for (std::int64_t i = 0; i < out.count(); ++i) {
    std::int64_t rest = i, offset = 0, stride = out.count();
    for (std::size_t d = shape.size(); d-- > 0;) {
      stride /= shape[d];
      offset += rest % shape[d] * stride;
      rest /= shape[d];
    }
    std::memcpy(out.data() + static_cast<std::size_t>(i) * size, found.data() + static_cast<std::size_t>(offset) * size,
                size);
  }
  return out;
}

void check_booleans(const Array& array, const std::string& path) {
  if (array.dtype() != DType::boolean) return;
  for (std::int64_t i = 0; i < array.count(); ++i)
    if (static_cast<unsigned char>(array.data()[i]) > 1)
      refuse(path, fmt::format("element {} is neither 0 nor 1, as a bool must be", i));
}

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& file) { return HeaderParser(text, file).run(); }

Array read_npy(const std::string& path) {
  Input input(path);
  const NpyHeader header = read_header(input, path);
  std::size_t bytes = size_of(header.dtype);
  for (const std::int64_t extent : header.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes) || bytes >> 62)
      refuse(path, fmt::format("its shape {} is larger than any tensor can be", shape_text(header.shape)));
  input.expect_rest(bytes);
  Array array(header.dtype, header.shape);
  input.read(array.data(), bytes, "its shape");
  input.expect_end();
  check_booleans(array, path);
  return header.fortran_order && header.shape.size() > 1 ? from_fortran(array, header.shape) : std::move(array);
}

std::string npy_header(const Array& array) {
  std::string shape;
  for (const std::int64_t extent : array.shape()) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", extent);
  if (array.shape().size() == 1) shape += ",";
  std::string_view descr;
  for (const Descr& known : descrs)
    if (descr.empty() && known.dtype == array.dtype()) descr = known.text;
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  const std::size_t before = magic.size() + 4, total = (before + text.size() + 1 + 63) / 64 * 64;
  text.append(total - before - text.size() - 1, ' ');
  text += '\n';
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace attile::cli
