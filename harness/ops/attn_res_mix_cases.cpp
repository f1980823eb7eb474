// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "harness/inputs.h"
#include "harness/ops/case_list.h"
#include "harness/ops/ops.h"

namespace k3::harness {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Options {
  std::int64_t T = 3;
  std::int64_t rows = 5;  ///< num_bank_rows
  std::int64_t NB = 0;    ///< of bank; 0: two more than it takes
  std::int64_t H = 7168;
  bool folded = false;
  bool write_prefix = false;
  const char* eps = "1e-5";
  double deviation = 1.0;        ///< of rows
  double score_deviation = 1.0;  ///< of the scores
};

/// One unit in the last place of bf16 where fp32 falls on the other side of a tie, and 2e-5 of the
/// size of a row of out, which is 1, where the mixture cancels.
std::map<std::string, Tolerance> tolerances(const Options& /*o*/) {
  return {{"out", {.err_ratio = 2e-3, .atol = 2e-5, .rtol = 0x1p-7}}};
}

/// Rows of bank that the call does not read hold NaN.
Bundle make_bundle(const Options& o, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t NB = o.NB > 0 ? o.NB : o.rows + 2;
  Bundle b;
  Tensor& bank = b.tensors["bank"] = poisoned(DType::kBF16, {o.T, NB, o.H});
  for (std::int64_t i = 0; i < bank.numel(); ++i)
    if (i / o.H % NB < o.rows) bank.set(i, o.deviation * random.normal());
  b.tensors["prefix"] = normal(random, DType::kBF16, {o.T, o.H}, o.deviation);
  const double proj = o.score_deviation / std::sqrt(static_cast<double>(o.H));
  if (o.folded) {
    b.tensors["score_weight"] = normal(random, DType::kBF16, {o.H}, proj);
  } else {
    b.tensors["score_norm_weight"] = normal(random, DType::kBF16, {o.H}, 0.1, 1.0);
    b.tensors["score_proj"] = normal(random, DType::kBF16, {o.H}, proj);
  }
  b.tensors["out_norm_weight"] = normal(random, DType::kBF16, {o.H}, 0.1, 1.0);
  b.tensors["out"] = poisoned(DType::kBF16, {o.T, o.H});
  b.scalars = {{"num_bank_rows", std::to_string(o.rows)},
               {"eps", o.eps},
               {"write_prefix", o.write_prefix ? "1" : "0"}};
  return b;
}

/// bank under other strides of token and row, gaps between them.
void restride_bank(Bundle& b, std::int64_t token, std::int64_t row, std::int64_t offset = 0) {
  b.tensors["bank"] = restrided(b.tensors.at("bank"), {token, row, 1}, offset);
}

void shift(Bundle& b, const std::string& name) {
  b.tensors[name] = restrided(b.tensors.at(name), {1}, 1);
}

/// Row j of every token of bank.
template <class Value>
void set_bank_row(Bundle& b, std::int64_t j, Value value) {
  Tensor& bank = b.tensors.at("bank");
  const std::int64_t NB = bank.shape()[1];
  const std::int64_t H = bank.shape()[2];
  for (std::int64_t i = 0; i < bank.numel(); ++i)
    if (i / H % NB == j) bank.set(i, value(i / H / NB, i % H));
}

void add_sizes(CaseList<Options>& list) {
  for (std::int64_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12})
    list.add("bank_rows_" + std::to_string(rows), {.T = 2, .rows = rows});
  for (std::int64_t rows : {31, 32, 33, 1023})
    list.add("bank_rows_" + std::to_string(rows), {.T = 2, .rows = rows, .H = 64});
  for (std::int64_t T : {0, 1, 16, 133})
    list.add("tokens_" + std::to_string(T), {.T = T, .H = 1024});
  for (std::int64_t T : {0, 1, 5, 16}) list.add("k3_tokens_" + std::to_string(T), {.T = T});
  for (std::int64_t H :
       {8, 16, 24, 40, 56, 120, 1000, 1016, 1024, 1032, 2048, 3584, 7160, 7176, 8192, 8200, 16384})
    list.add("columns_" + std::to_string(H), {.rows = 3, .H = H});
  const auto none = [](Bundle&) {};
  // Several tokens a CTA, and not as many in each.
  for (std::int64_t rows : {1, 8})
    list.add("tokens_531_bank_rows_" + std::to_string(rows),
             {.T = 531, .rows = rows, .NB = rows, .write_prefix = false}, none, false);
  list.add("tokens_531_write_prefix", {.T = 531, .rows = 2, .write_prefix = true}, none, false);
  list.add("tokens_70000", {.T = 70000, .rows = 1, .NB = 1, .H = 8}, none, false);
}

void add_forms(CaseList<Options>& list) {
  for (std::int64_t rows : {0, 5, 8, 9})
    list.add("folded_bank_rows_" + std::to_string(rows), {.rows = rows, .folded = true});
  for (std::int64_t rows : {0, 5, 7, 8, 9}) {
    const std::string name = "write_prefix_bank_rows_" + std::to_string(rows);
    list.add(name, {.rows = rows, .write_prefix = true});
    list.add(name + "_last_row", {.rows = rows, .NB = rows + 1, .write_prefix = true});
  }
  list.add("bank_of_11", {.NB = 11, .write_prefix = true});
  list.add("bank_of_none", {.rows = 0, .NB = 0},
           [](Bundle& b) { b.tensors["bank"] = Tensor::dense(DType::kBF16, {3, 0, 7168}); });
  list.add("eps_0", {.eps = "0"});
  list.add("eps_large", {.eps = "10"});
}

void add_layouts(CaseList<Options>& list) {
  const Options small = {.T = 4, .rows = 3, .NB = 5, .H = 1016, .write_prefix = true};
  list.add("rows_apart", small, [](Bundle& b) { restride_bank(b, 5 * 1024 + 64, 1024); });
  list.add("rows_outside_tokens", small, [](Bundle& b) { restride_bank(b, 1024, 4 * 1024 + 8); });
  list.add("odd_strides", small, [](Bundle& b) { restride_bank(b, 5 * 1017 + 3, 1017); });
  list.add("odd_token_stride", small, [](Bundle& b) { restride_bank(b, 5 * 1024 + 1, 1024); });
  list.add("bank_off_by_one", small, [](Bundle& b) { restride_bank(b, 5 * 1024, 1024, 1); });
  for (const char* name : {"prefix", "out"}) {
    list.add(std::string(name) + "_apart", small, [=](Bundle& b) { pad_rows(b, name, 64, 8); });
    list.add(std::string(name) + "_odd", small, [=](Bundle& b) { pad_rows(b, name, 3, 0); });
    list.add(std::string(name) + "_off_by_one", small, [=](Bundle& b) { pad_rows(b, name, 8, 1); });
  }
  for (const char* name : {"score_norm_weight", "score_proj", "out_norm_weight"})
    list.add(std::string(name) + "_off_by_one", small, [=](Bundle& b) { shift(b, name); });
  list.add("score_weight_off_by_one", {.H = 1016, .folded = true},
           [](Bundle& b) { shift(b, "score_weight"); });
  list.add("k3_rows_apart", {.T = 9, .NB = 8, .write_prefix = true}, [](Bundle& b) {
    restride_bank(b, 7184, 9 * 7184 + 32);
    pad_rows(b, "prefix", 8, 16);
    pad_rows(b, "out", 16, 8);
  });
}

void add_values(CaseList<Options>& list) {
  for (const auto& [name, deviation] :
       {std::pair{"tiny", 1e-12}, {"small", 1e-3}, {"large", 1e3}, {"huge", 1e15}})
    list.add(std::string("rows_") + name, {.deviation = deviation});
  list.add("subnormal_rows", {.deviation = 1e-39});
  list.add("one_row_wins", {.score_deviation = 30.0});
  list.add("scores_of_0", {},
           [](Bundle& b) { set_all(b, "score_proj", [](std::int64_t) { return 0.0; }); });
  list.add("equal_rows", {.NB = 5}, [](Bundle& b) {
    set_all(b, "bank", [](std::int64_t i) { return i % 7168 % 17 - 8.0; });
    set_all(b, "prefix", [](std::int64_t i) { return i % 7168 % 17 - 8.0; });
  });
  list.add("rows_that_cancel", {.rows = 1, .NB = 1}, [](Bundle& b) {
    set_all(b, "score_proj", [](std::int64_t) { return 0.0; });
    const Tensor prefix = b.tensors.at("prefix").clone();
    set_all(b, "bank", [=](std::int64_t i) { return -prefix.get(i); });
  });
  list.add("zeros_of_both_signs", {}, [](Bundle& b) {
    set_all(b, "bank", [](std::int64_t i) { return i % 2 == 0 ? 0.0 : -0.0; });
    set_all(b, "prefix", [](std::int64_t i) { return i % 3 == 0 ? 0.0 : -0.0; });
  });
  list.add("a_row_of_zeros", {},
           [](Bundle& b) { set_bank_row(b, 2, [](std::int64_t, std::int64_t) { return 0.0; }); });
  // One element of one token; the others must not notice.
  for (const auto& [name, value] : {std::pair{"nan", kNaN}, {"inf", kInf}, {"minus_inf", -kInf}})
    for (std::int64_t column : {0, 4097, 7167}) {
      const std::string place = std::string(name) + "_at_" + std::to_string(column);
      list.add(place + "_of_bank", {}, [=, v = value](Bundle& b) {
        b.tensors.at("bank").set((1 * 7 + 3) * 7168 + column, v);
      });
      list.add(place + "_of_prefix", {.rows = 8},
               [=, v = value](Bundle& b) { b.tensors.at("prefix").set(7168 + column, v); });
    }
  list.add("nan_in_out_norm_weight", {},
           [](Bundle& b) { b.tensors.at("out_norm_weight").set(5, kNaN); });
  list.add("nan_in_score_proj", {}, [](Bundle& b) { b.tensors.at("score_proj").set(5, kNaN); });
}

/// K3's width in calls of so many tokens that CUDA takes another kernel: its first token count and
/// the last before it (96, with at most two bank rows 128), each number of rows, layouts, values.
void add_many_tokens(CaseList<Options>& list) {
  const auto none = [](Bundle&) {};
  for (std::int64_t rows = 0; rows <= 8; ++rows)
    for (const std::int64_t more : {0, 1}) {
      const std::int64_t T = (rows <= 2 ? 128 : 96) + more;
      list.add("k3_tokens_" + std::to_string(T) + "_bank_rows_" + std::to_string(rows),
               {.T = T, .rows = rows, .NB = 8, .folded = rows % 2 != 0}, none, false);
    }
  for (const std::int64_t rows : {1, 7}) {
    const Options o = {.T = 130, .rows = rows, .NB = rows + 1, .write_prefix = true};
    const std::string name = "k3_tokens_130_bank_rows_" + std::to_string(rows);
    list.add(name + "_write_prefix", o, none, false);
    list.add(
        name + "_rows_apart", o,
        [=](Bundle& b) {
          restride_bank(b, 7184, 130 * 7184 + 32);
          pad_rows(b, "prefix", 8, 16);
          pad_rows(b, "out", 16, 8);
        },
        false);
    for (const auto& [what, value] :
         {std::pair{"nan", kNaN}, {"inf", kInf}, {"minus_inf", -kInf}}) {
      list.add(
          name + "_" + what + "_of_bank", o,
          [=, v = value](Bundle& b) { b.tensors.at("bank").set(77 * (rows + 1) * 7168 + 4097, v); },
          false);
      list.add(
          name + "_" + what + "_of_prefix", o,
          [=, v = value](Bundle& b) { b.tensors.at("prefix").set(129 * 7168 + 7167, v); }, false);
    }
  }
}

}  // namespace

std::vector<Case> attn_res_mix_cases() {
  CaseList<Options> list(make_bundle, tolerances);
  add_sizes(list);
  add_forms(list);
  add_layouts(list);
  add_values(list);
  add_many_tokens(list);
  return list.take();
}

}  // namespace k3::harness
