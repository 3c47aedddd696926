// Attention of one new token per row to the keys and values kept for it. One pass over the keys, one over the values:
// every key is read once for all query heads of its group, and blocks of hidden columns are not read at all.
//
// Compiled for one shape: HEAD numbers per head (a multiple of LANES), GROUP query heads per head of keys and values.

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int LANES = 16;
constexpr int CHUNKS = HEAD / LANES;
constexpr int AHEAD = 1024;       // numbers ahead of those at work that are fetched into the cache
constexpr float HIDDEN = -1e30f;  // a mask below this hides a column: torch's least numbers of a type are far below

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Whole __attribute__((vector_size(4 * LANES)));

inline Vector load(const float* from) {
  Vector x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

inline void store(float* to, Vector x) { std::memcpy(to, &x, sizeof x); }

inline Vector all(float x) { return Vector{} + x; }

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

inline float highest(Vector x) {
  float most = x[0];
  for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
  return most;
}

inline float total(Vector x) {
  float sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

// e^x for x <= 0, to a relative 3e-7: 2^n by the exponent's bits, times a polynomial for the rest within +-1/2.
inline Vector exponential(Vector x) {
  x = x < -87.f ? all(-87.f) : x;
  const Vector power = x * 1.44269504f;
  const Whole whole = __builtin_convertvector(power - 0.5f, Whole);
  const Vector rest = power - __builtin_convertvector(whole, Vector);
  Vector y = all(1.5403530e-4f);
  for (float next : {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.f}) y = y * rest + next;
  const Whole bits = (whole + 127) << 23;
  Vector scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return y * scale;
}

// One row and one head of keys and values. weights: GROUP times `width` rounded up to LANES.
void attend_head(const float* query, const float* keys, const float* values, const float* mask, float* out,
                 int64_t width, float scale, float* weights) {
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
      const float* key = keys + (start + (i < count ? i : count - 1)) * HEAD;
      for (int c = 0; c < CHUNKS; c++) {
        __builtin_prefetch(key + AHEAD + c * LANES);
        const Vector part = load(key + c * LANES);
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
    const float* value = values + column * HEAD;
    for (int c = 0; c < CHUNKS; c++) {
      __builtin_prefetch(value + AHEAD + c * LANES);
      const Vector part = load(value + c * LANES);
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
  auto attend_rows = [=](int64_t first, int64_t last) {
    std::vector<float> weights(GROUP * (width + LANES));
    for (int64_t row = first; row < last; row++)
      for (int64_t head = 0; head < kept_heads; head++) {
        const int64_t heads = (row * kept_heads + head) * GROUP * HEAD, kept = row * row_step + head * head_step;
        attend_head(query + heads, keys + kept, values + kept, mask + row * mask_step, out + heads, width, scale,
                    weights.data());
      }
  };
  std::vector<std::thread> others;
  for (int64_t n = 1; n < num_threads; n++)
    others.emplace_back(attend_rows, rows * n / num_threads, rows * (n + 1) / num_threads);
  attend_rows(0, rows / num_threads);
  for (auto& other : others) other.join();
}
