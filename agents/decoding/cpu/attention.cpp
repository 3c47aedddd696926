// Attention of one new token per row to the keys and values kept for it. One pass over the keys, one over the values:
// every key is read once for all query heads of its group, and blocks of hidden columns are not read at all.
//
// Compiled for one shape: HEAD numbers per head (a multiple of LANES), GROUP query heads per head of keys and values.

#include "vectors.h"

namespace {

constexpr int CHUNKS = HEAD / LANES;
constexpr float HIDDEN = -1e30f;  // a mask below this hides a column: torch's least numbers of a type are far below

// Into the second-level cache: a head's keys or values may fill the first.
inline void fetch(const float* from) { __builtin_prefetch(from, 0, 2); }

inline Vector added_pairs(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// The sum of each of LANES vectors; they are written over.
inline Vector sums(Vector* x) {
  for (int count = LANES / 2; count > 0; count /= 2)
    for (int i = 0; i < count; i++) x[i] = added_pairs(x[2 * i], x[2 * i + 1]);
  return x[0];
}

// One row and one head of keys and values. Nothing else tells the processor where it goes on after a head: while keys
// are read, values are fetched, and while these are, the next head's keys.
// weights: GROUP times `width` rounded up to LANES.
void attend_head(const float* query, const float* keys, const float* values, const float* next_keys, const float* mask,
                 float* out, int64_t width, float scale, float* weights) {
  const int64_t padded = (width + LANES - 1) / LANES * LANES;
  Vector asked[GROUP][CHUNKS], top[GROUP];
  for (int g = 0; g < GROUP; g++) {
    top[g] = all(HIDDEN);
    for (int c = 0; c < CHUNKS; c++) asked[g][c] = load(query + g * HEAD + c * LANES) * scale;
  }
  int64_t seen = 0;  // columns up to the last block of which anything is seen
  for (int64_t start = 0; start < padded; start += LANES) {
    const int64_t count = width - start < LANES ? width - start : LANES;
    Vector bias = all(2 * HIDDEN);
    if (count == LANES)
      bias = load(mask + start);
    else
      for (int64_t i = 0; i < count; i++) bias[i] = mask[start + i];
    if (highest(bias) < HIDDEN) {
      for (int g = 0; g < GROUP; g++) store(weights + g * padded + start, all(2 * HIDDEN));
      continue;
    }
    seen = start + LANES;
    Vector products[GROUP][LANES];
    for (int64_t i = 0; i < LANES; i++) {
      const int64_t place = (start + (i < count ? i : count - 1)) * HEAD;
      for (int c = 0; c < CHUNKS; c++) {
        fetch(values + place + c * LANES);
        const Vector part = load(keys + place + c * LANES);
        for (int g = 0; g < GROUP; g++) products[g][i] = c ? products[g][i] + asked[g][c] * part : asked[g][c] * part;
      }
    }
    for (int g = 0; g < GROUP; g++) {
      const Vector scores = sums(products[g]) + bias;
      store(weights + g * padded + start, scores);
      top[g] = scores > top[g] ? scores : top[g];
    }
  }
  float share[GROUP];
  for (int g = 0; g < GROUP; g++) {
    float* own = weights + g * padded;
    const float most = highest(top[g]);
    Vector sum = all(0);
    for (int64_t start = 0; start < seen; start += LANES) {
      const Vector scores = load(own + start);
      const Vector weight = scores < HIDDEN ? all(0) : exponential(scores - most);
      store(own + start, weight);
      sum += weight;
    }
    share[g] = seen ? 1 / total(sum) : 0;
  }
  Vector mixed[GROUP][CHUNKS] = {};
  for (int64_t column = 0; column < (seen < width ? seen : width); column++) {
    for (int c = 0; c < CHUNKS; c++) {
      fetch(next_keys + column * HEAD + c * LANES);
      const Vector part = load(values + column * HEAD + c * LANES);
      for (int g = 0; g < GROUP; g++) mixed[g][c] += weights[g * padded + column] * part;
    }
  }
  for (int g = 0; g < GROUP; g++)
    for (int c = 0; c < CHUNKS; c++) store(out + g * HEAD + c * LANES, mixed[g][c] * share[g]);
}

}  // namespace

// query and out: [rows, kept_heads * GROUP, HEAD]; keys and values: a row every row_step numbers, in it a head every
// head_step, in it [width, HEAD]; mask: `width` numbers every mask_step, added to the scores.
extern "C" void attend(const float* query, const float* keys, const float* values, const float* mask, float* out,
                       int64_t rows, int64_t kept_heads, int64_t width, int64_t row_step, int64_t head_step,
                       int64_t mask_step, float scale, int64_t num_threads) {
  divided(rows, num_threads, [=](int64_t first, int64_t last) {
    std::vector<float> weights(GROUP * (width + LANES));
    for (int64_t row = first; row < last; row++)
      for (int64_t head = 0; head < kept_heads; head++) {
        const int64_t heads = (row * kept_heads + head) * GROUP * HEAD, kept = row * row_step + head * head_step;
        const int64_t next = head + 1 < kept_heads ? kept + head_step : row + 1 < last ? (row + 1) * row_step : kept;
        attend_head(query + heads, keys + kept, values + kept, keys + next, mask + row * mask_step, out + heads, width,
                    scale, weights.data());
      }
  });
}
