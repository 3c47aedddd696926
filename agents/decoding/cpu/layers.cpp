// What a layer does beside products and attention, each in one pass over memory: torch makes five to ten.

#include "vectors.h"

#include <cmath>

namespace {

// 1 / (1 + e^-x)
inline Vector logistic(Vector x) {
  const Vector far = x < 0.f ? x : -x, below = far < -87.f ? all(0) : exponential(far), over = 1.f / (1.f + below);
  return x < 0.f ? below * over : over;
}

}  // namespace

// out = weight * x * shrink, shrink = 1 / sqrt(mean of x^2 + epsilon). x, out: [rows, width]; shrink: [rows].
extern "C" void normalise(const float* x, const float* weight, float* out, float* shrink, int64_t rows, int64_t width,
                          float epsilon, int64_t num_threads) {
  divided(rows, num_threads, [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
      const float* from = x + row * width;
      Vector squares = all(0);
      for (int64_t i = 0; i < width; i += LANES) squares += load(from + i) * load(from + i);
      const float by = 1 / std::sqrt(total(squares) / width + epsilon);
      shrink[row] = by;
      for (int64_t i = 0; i < width; i += LANES) store(out + row * width + i, load(weight + i) * (load(from + i) * by));
    }
  });
}

// The slopes of what `normalise` makes: by_x like x, by_weight: [num_threads, width], to be added up.
extern "C" void normalise_backward(const float* slope, const float* x, const float* weight, const float* shrink,
                                   float* by_x, float* by_weight, int64_t rows, int64_t width, int64_t num_threads) {
  divided(num_threads, num_threads, [=](int64_t thread, int64_t) {
    float* sums = by_weight + thread * width;
    for (int64_t i = 0; i < width; i++) sums[i] = 0;
    for (int64_t row = rows * thread / num_threads; row < rows * (thread + 1) / num_threads; row++) {
      const float by = shrink[row];
      Vector along = all(0);  // the part of the slope that only changes x's length
      for (int64_t i = 0; i < width; i += LANES) {
        const Vector product = load(slope + row * width + i) * load(x + row * width + i);
        along += product * load(weight + i);
        store(sums + i, load(sums + i) + product * by);
      }
      const float length = total(along) * by * by * by / width;
      for (int64_t i = 0; i < width; i += LANES) {
        const int64_t place = row * width + i;
        store(by_x + place, load(slope + place) * load(weight + i) * by - load(x + place) * length);
      }
    }
  });
}

// out = silu(gate) * up; count: blocks of LANES numbers.
extern "C" void gate_up(const float* gate, const float* up, float* out, int64_t count, int64_t num_threads) {
  divided(count, num_threads, [=](int64_t first, int64_t last) {
    for (int64_t i = first * LANES; i < last * LANES; i += LANES) {
      const Vector x = load(gate + i);
      store(out + i, x * logistic(x) * load(up + i));
    }
  });
}

// The slopes of what `gate_up` makes.
extern "C" void gate_up_backward(const float* slope, const float* gate, const float* up, float* by_gate, float* by_up,
                                 int64_t count, int64_t num_threads) {
  divided(count, num_threads, [=](int64_t first, int64_t last) {
    for (int64_t i = first * LANES; i < last * LANES; i += LANES) {
      const Vector x = load(gate + i), share = logistic(x), opened = x * share, wanted = load(slope + i);
      store(by_up + i, wanted * opened);
      store(by_gate + i, wanted * load(up + i) * (share + opened * (1.f - share)));
    }
  });
}

// Turn pairs of numbers, i and i + width / 2 of a head, by angles of which cosines and sines are given; backwards: the
// slopes of that. x, out: [rows, heads, width]; cosine, sine: [angles, width], of rows 0, 1, ... again and again.
extern "C" void rotate(const float* x, const float* cosine, const float* sine, float* out, int64_t rows, int64_t heads,
                       int64_t width, int64_t angles, int64_t backwards, int64_t num_threads) {
  const int64_t half = width / 2;
  divided(rows, num_threads, [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
      const float *c = cosine + row % angles * width, *s = sine + row % angles * width;
      const float *below = backwards ? s + half : s, *above = backwards ? s : s + half;
      const float sign = backwards ? -1 : 1;
      for (int64_t head = row * heads; head < (row + 1) * heads; head++) {
        const float* from = x + head * width;
        float* __restrict to = out + head * width;
        for (int64_t i = 0; i < half; i++) {
          to[i] = from[i] * c[i] - sign * from[half + i] * below[i];
          to[half + i] = from[half + i] * c[half + i] + sign * from[i] * above[i];
        }
      }
    }
  });
}

// Write row i's new key and value into row rows[i], column columns[i] of the stores.
// keys, values: `width` numbers for each head, a row every *_row numbers, a head every *_head.
extern "C" void keep(const float* keys, const float* values, float* kept_keys, float* kept_values, const int64_t* rows,
                     const int64_t* columns, int64_t count, int64_t heads, int64_t width, int64_t key_row,
                     int64_t key_head, int64_t value_row, int64_t value_head, int64_t kept_row, int64_t kept_head) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t head = 0; head < heads; head++) {
      const int64_t to = rows[i] * kept_row + head * kept_head + columns[i] * width;
      std::memcpy(kept_keys + to, keys + i * key_row + head * key_head, width * sizeof(float));
      std::memcpy(kept_values + to, values + i * value_row + head * value_head, width * sizeof(float));
    }
}
