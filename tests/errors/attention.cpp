// Every way to misuse an attention call: which error it is, what it says, and that no output byte has changed.
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "dsl/error.h"
#include "runtime/attention.h"
#include "tests/runtime/small_call.h"
#include "tests/support/catch_compat.h"

using namespace attile;
using namespace attile::test;

namespace {

struct Misuse {
  const char* name;
  std::function<void(SmallCall&)> make;
  const char* says;
  ErrorKind kind = ErrorKind::argument;
};

constexpr double infinite = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

void check_all(const std::vector<Misuse>& misuses) {
  for (const Misuse& m : misuses) {
    SmallCall c;
    m.make(c);
    INFO(m.name);
    try {
      run_attention(c.call);
      FAIL_CHECK("it ran");
    } catch (const Error& e) {
      INFO(e.what());
      CHECK(e.kind() == m.kind);
      CHECK(std::string(e.what()).find(m.says) != std::string::npos);
      CHECK(!e.where().empty());
    }
    CHECK(c.outputs_untouched());
  }
}

}  // namespace

TEST_CASE("a number that means nothing is refused by name") {
  check_all({
      {"negative scale", [](auto& c) { c.call.scale = -1; }, "scale is -1"},
      {"NaN scale", [](auto& c) { c.call.scale = not_a_number; }, "scale is nan"},
      {"infinite scale", [](auto& c) { c.call.scale = infinite; }, "scale is inf"},
      {"scale beyond float32", [](auto& c) { c.call.scale = 1e300; }, "scale is 1e+300"},
      {"negative softcap", [](auto& c) { c.call.softcap = -2; }, "softcap is -2"},
      {"NaN softcap", [](auto& c) { c.call.softcap = not_a_number; }, "softcap is nan"},
      {"infinite softcap", [](auto& c) { c.call.softcap = infinite; }, "softcap is inf"},
      {"softcap below float32", [](auto& c) { c.call.softcap = 1e-300; }, "softcap is 1e-300"},
      {"dropout of 1", [](auto& c) { c.call.dropout = 1; }, "dropout is 1"},
      {"negative dropout", [](auto& c) { c.call.dropout = -0.1; }, "dropout is -0.1"},
      {"NaN dropout", [](auto& c) { c.call.dropout = not_a_number; }, "dropout is nan"},
      {"window of -2", [](auto& c) { c.call.window_left = -2; }, "window_left is -2 (-1 is no limit"},
      {"right window of -5", [](auto& c) { c.call.window_right = -5; }, "window_right is -5"},
      {"top_k of 129", [](auto& c) { c.call.top_k = 129; }, "top_k outside 1..128"},
      {"negative top_k", [](auto& c) { c.call.top_k = -1; }, "top_k outside 1..128"},
  });
}

TEST_CASE("options that exclude each other are refused with the reason") {
  check_all({
      {"one of two bounds", [](auto& c) { c.packed(), c.call.cu_seqlens_k.reset(); },
       "cu_seqlens_q is given without cu_seqlens_k"},
      {"the other of two bounds", [](auto& c) { c.packed(), c.call.cu_seqlens_q.reset(); },
       "cu_seqlens_k is given without cu_seqlens_q"},
      {"bounds with kv_lens", [](auto& c) { c.packed(), c.with_lens(); }, "kv_lens is given with cu_seqlens"},
      {"values without top_k", [](auto& c) { c.with_top_k(), c.call.top_k = 0; }, "'values' is given without top_k"},
      {"indices without top_k", [](auto& c) { c.with_top_k(), c.call.top_k = 0, c.call.values.reset(); },
       "'indices' is given without top_k"},
      {"values without indices", [](auto& c) { c.with_top_k(), c.call.indices.reset(); },
       "'values' is given without 'indices'"},
      {"prefix without causal", [](auto& c) { c.with_prefix(); }, "prefix without causal"},
      {"lse of sigmoid", [](auto& c) { c.with_lse(), c.call.rule = Rule::sigmoid; }, "no normaliser"},
      {"lse of linear", [](auto& c) { c.with_lse(), c.call.rule = Rule::linear; }, "no normaliser"},
      {"sink with sigmoid", [](auto& c) { c.with_sink(), c.call.rule = Rule::sigmoid; },
       "sink with rule sigmoid or linear"},
      {"sink with softmax_plus_one", [](auto& c) { c.with_sink(), c.call.rule = Rule::softmax_plus_one; }, "sink of 0"},
      {"top_k with linear", [](auto& c) { c.with_top_k(), c.call.rule = Rule::linear; },
       "top_k with rule sigmoid or linear"},
      {"top_k with dropout", [](auto& c) { c.with_top_k(), c.call.dropout = 0.5; }, "top_k with dropout"},
      {"no renormalising without top_k", [](auto& c) { c.call.top_k_renormalise = false; },
       "no selection to renormalise"},
      {"packed bias",
       [](auto& c) {
         c.packed(), c.call.bias = contiguous(c.bias.data(), DType::float32, {1, 4, 3, 5});
       },
       "bias with packed"},
      {"packed mask",
       [](auto& c) {
         c.packed(), c.call.mask = contiguous(c.mask.data(), DType::boolean, {1, 4, 3, 5});
       },
       "mask with packed"},
      {"packed documents",
       [](auto& c) {
         c.packed(), c.call.doc_ids = contiguous(c.documents.data(), DType::int32, {1, 5});
       },
       "documents with packed"},
  });
}

TEST_CASE("a tensor of the wrong rank, shape or type is refused with both shapes") {
  check_all({
      {"q without batch",
       [](auto& c) {
         c.call.q = contiguous(c.q.data(), DType::float32, {4, 3, 16});
       },
       "'q' has shape [4, 3, 16], but must be [B][H][N_q][D]"},
      {"no k", [](auto& c) { c.call.k = {}; }, "'k' has shape [], but must be [B][H_k][N_k][D]"},
      {"integer v", [](auto& c) { c.call.v.dtype = DType::int32; },
       "'v' is int32, but must be float32, bfloat16 or float16"},
      {"boolean o", [](auto& c) { c.call.o.dtype = DType::boolean; }, "'o' is boolean"},
      {"head dims differ", [](auto& c) { c.call.k.shape[3] = 15; },
       "'k' has shape [2, 2, 5, 15], but [B][H_k][N_k][D] is [2, 2, 5, 16]"},
      {"fewer keys than values", [](auto& c) { c.call.k.shape[2] = 4; }, "'v' has shape [2, 2, 5, 8]"},
      {"batches differ", [](auto& c) { c.call.v.shape[0] = 1; }, "'v' has shape [1, 2, 5, 8]"},
      {"o as wide as q", [](auto& c) { c.call.o.shape[3] = 16; },
       "'o' has shape [2, 4, 3, 16], but [B][H][N_q][D_v] is [2, 4, 3, 8]"},
      {"4 heads on 3", [](auto& c) { c.call.k.shape[1] = c.call.v.shape[1] = 3; },
       "4 query heads are no multiple of 3 kv heads"},
      {"4 heads on none", [](auto& c) { c.call.k.shape[1] = c.call.v.shape[1] = 0; }, "no multiple of 0 kv heads"},
      {"head dim 0", [](auto& c) { c.call.q.shape[3] = c.call.k.shape[3] = 0; }, "extent 0"},
      {"bfloat16 lse", [](auto& c) { c.with_lse(), c.call.lse->dtype = DType::bfloat16; },
       "'lse' is bfloat16, but must be float32"},
      {"lse of one head", [](auto& c) { c.with_lse(), c.call.lse->shape[1] = 1; }, "'lse' has shape [2, 1, 3]"},
      {"values for another k", [](auto& c) { c.with_top_k(), c.call.top_k = 3; }, "'values' has shape [2, 4, 3, 4]"},
      {"int64 indices", [](auto& c) { c.with_top_k(), c.call.indices->dtype = DType::int64; },
       "'indices' is int64, but must be int32"},
      {"slopes of other heads", [](auto& c) { c.call.alibi_slopes = contiguous(c.slopes.data(), DType::float32, {2}); },
       "'alibi_slopes' has shape [2]"},
      {"slopes of rank 3",
       [](auto& c) {
         c.call.alibi_slopes = contiguous(c.slopes.data(), DType::float32, {1, 1, 4});
       },
       "[H] or [B or 1][H]"},
      {"float16 slopes", [](auto& c) { c.with_slopes(), c.call.alibi_slopes->dtype = DType::float16; },
       "'alibi_slopes' is float16"},
      {"flat bias",
       [](auto& c) {
         c.call.bias = contiguous(c.bias.data(), DType::float32, {3, 5});
       },
       "'bias' has shape [3, 5], but must be [B or 1]"},
      {"bias of one key",
       [](auto& c) {
         c.call.bias = contiguous(c.bias.data(), DType::float32, {1, 1, 1, 1});
       },
       "is [2, 4, 3, 5] in this call"},
      {"float mask", [](auto& c) { c.with_mask(), c.call.mask->dtype = DType::float32; },
       "'mask' is float32, but must be boolean"},
      {"sink of other heads", [](auto& c) { c.call.sink = contiguous(c.sink.data(), DType::float32, {2}); },
       "'sink' has shape [2], but [H] is [4]"},
      {"int64 prefix", [](auto& c) { c.call.causal = true, c.with_prefix(), c.call.prefix_len->dtype = DType::int64; },
       "'prefix_len' is int64"},
      {"documents of other keys", [](auto& c) { c.with_documents(), c.call.doc_ids->shape[1] = 4; },
       "'doc_ids' has shape [2, 4]"},
      {"float lengths", [](auto& c) { c.with_lens(), c.call.kv_lens->dtype = DType::float32; },
       "'kv_lens' is float32, but must be int32"},
      {"lengths of three sequences", [](auto& c) { c.with_lens(), c.call.kv_lens->shape[0] = 3; },
       "'kv_lens' has shape [3]"},
      {"no bounds", [](auto& c) { c.packed(), c.call.cu_seqlens_q->shape[0] = 0; }, "'cu_seqlens_q' is empty"},
      {"bounds of other sequences", [](auto& c) { c.packed(), c.call.cu_seqlens_k->shape[0] = 2; },
       "'cu_seqlens_k' has shape [2]"},
      {"packed batches",
       [](auto& c) { c.packed(), c.call.q.shape[0] = c.call.k.shape[0] = c.call.v.shape[0] = c.call.o.shape[0] = 2; },
       "batch extent 1"},
      {"negative extent",
       [](auto& c) {
         for (auto* t : {&c.call.q, &c.call.o}) t->shape[2] = -3;
       },
       "negative extent -3"},
  });
}

TEST_CASE("memory that cannot hold the call is refused before anything is written") {
  check_all({
      {"no data", [](auto& c) { c.call.v.data = nullptr; }, "'v' has no data"},
      {"odd address", [](auto& c) { c.call.q.data = static_cast<char*>(c.call.q.data) + 1; }, "the address of 'q'"},
      {"head dim with gaps", [](auto& c) { c.call.k.strides[3] = 2; }, "the last dim of 'k' has stride 2"},
      {"all rows of o in one", [](auto& c) { c.call.o.strides[2] = 0; }, "output 'o' overlaps itself"},
      {"o on q", [](auto& c) { c.call.o.data = c.call.q.data; }, "output 'o' overlaps 'q'"},
      {"lse on o", [](auto& c) { c.with_lse(), c.call.lse->data = c.call.o.data; }, "overlaps"},
      {"length beyond the keys",
       [](auto& c) {
         c.lens = {4, 6}, c.with_lens();
       },
       "kv_lens[1] is 6, outside [0, 5]"},
      {"negative length",
       [](auto& c) {
         c.lens = {-1, 5}, c.with_lens();
       },
       "kv_lens[0] is -1"},
      {"bounds that do not start at 0",
       [](auto& c) {
         c.bounds_q = {1, 2, 3}, c.packed();
       },
       "cu_seqlens_q[0] is 1"},
      {"falling bounds",
       [](auto& c) {
         c.bounds_k = {0, 4, 3}, c.packed();
       },
       "cu_seqlens_k falls from 4 to 3"},
      {"bounds beyond the tokens",
       [](auto& c) {
         c.bounds_k = {0, 4, 6}, c.packed();
       },
       "cu_seqlens_k[2] is 6, but there are 5 tokens"},
      {"bounds short of the tokens",
       [](auto& c) {
         c.bounds_q = {0, 1, 2}, c.packed();
       },
       "cu_seqlens_q ends at 2, but there are 3 tokens"},
  });
}

TEST_CASE("what is understood but cannot be built is unsupported, with the reasons") {
  check_all({
      {"an odd tile", [](auto& c) { c.call.schedule.emplace().tile_keys = 7; }, "tile_keys 7 is",
       ErrorKind::unsupported},
      {"a wide head",
       [](auto& c) {
         for (auto* t : {&c.call.q, &c.call.k}) t->shape[3] = 1025, t->strides = {0, 0, 0, 1};
       },
       "head_dim is 1025, and head dims go from 1 to 1024", ErrorKind::unsupported},
  });
}
