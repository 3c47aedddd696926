// Kernels of transformer layers on a CPU, in fp32: RMSNorm, SwiGLU, RoPE, and attention of one new token per row.
//
// Compiled for one shape of heads: HEAD numbers per head (a multiple of LANES), GROUP query heads per key-value head.

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <thread>
#include <vector>

namespace {

constexpr int LANES = 16, CHUNKS = HEAD / LANES;
constexpr float HIDDEN = -1e30f;  // mask values below this hide a column; torch's masks contain about -3e38

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Whole __attribute__((vector_size(4 * LANES)));

inline Vector load(const float* from) { return *(const Vector*)from; }
inline void store(float* to, Vector x) { *(Vector*)to = x; }
inline Vector all(float x) { return Vector{} + x; }

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

// e^x for x <= 0, with a relative error of 3e-7: 2^n by exponent bits, times a polynomial of a number in [-1/2, 1/2].
inline Vector exponential(Vector x) {
  x = x < -87.f ? all(-87.f) : x;
  const Vector power = x * 1.44269504f;
  const Whole whole = __builtin_convertvector(power - 0.5f, Whole);
  const Vector rest = power - __builtin_convertvector(whole, Vector);
  Vector y = all(1.5403530e-4f);
  for (float next : {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.f}) y = y * rest + next;
  return y * (Vector)((whole + 127) << 23);
}

// 1 / (1 + e^-x)
inline Vector logistic(Vector x) {
  const Vector far = x < 0.f ? x : -x, below = far < -87.f ? all(0) : exponential(far), over = 1.f / (1.f + below);
  return x < 0.f ? below * over : over;
}

inline Vector added_pairs(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// Return the sum of each of LANES vectors. The vectors are overwritten.
inline Vector sums(Vector* x) {
  for (int count = LANES / 2; count > 0; count /= 2)
    for (int i = 0; i < count; i++) x[i] = added_pairs(x[2 * i], x[2 * i + 1]);
  return x[0];
}

// Call work(i) for all i below `count`, divided into one part per thread.
template <class Work>
void parallel(int64_t count, int64_t num_threads, const Work& work) {
  const auto part = [&](int64_t n) {
    for (int64_t i = count * n / num_threads; i < count * (n + 1) / num_threads; i++) work(i);
  };
  std::vector<std::thread> others;
  for (int64_t n = 1; n < num_threads; n++) others.emplace_back(part, n);
  part(0);
  for (auto& other : others) other.join();
}

}  // namespace

extern "C" {

// Attention: out = softmax(scale query keys^T + mask) values. query and out: [rows, kept_heads * GROUP, HEAD]. keys and
// values: [rows, kept_heads, width, HEAD], with strides row_step and head_step. mask: [rows, width], stride mask_step.
void attend(const float* query, const float* keys, const float* values, const float* mask, float* out, int64_t rows,
            int64_t kept_heads, int64_t width, int64_t row_step, int64_t head_step, int64_t mask_step, float scale,
            int64_t num_threads) {
  const int64_t padded = (width + LANES - 1) / LANES * LANES;
  parallel(rows * kept_heads, num_threads, [=](int64_t pair) {
    const int64_t row = pair / kept_heads, head = pair % kept_heads;
    const int64_t next = pair + 1 < rows * kept_heads ? pair + 1 : pair;
    const int64_t own = row * row_step + head * head_step;
    // Prefetch values while keys are read, and the next keys while values are read, into the second-level cache.
    const int64_t coming = next / kept_heads * row_step + next % kept_heads * head_step;
    thread_local std::vector<float> scratch;
    scratch.resize(GROUP * padded);
    float* weights = scratch.data();
    Vector asked[GROUP][CHUNKS], top[GROUP];
    for (int g = 0; g < GROUP; g++) {
      top[g] = all(HIDDEN);
      for (int c = 0; c < CHUNKS; c++) asked[g][c] = load(query + (pair * GROUP + g) * HEAD + c * LANES) * scale;
    }
    int64_t seen = 0;  // columns up to the last block that the mask does not hide
    for (int64_t start = 0; start < padded; start += LANES) {
      const int64_t count = width - start < LANES ? width - start : LANES;
      Vector bias = all(2 * HIDDEN);
      if (count == LANES)
        bias = load(mask + row * mask_step + start);
      else
        for (int64_t i = 0; i < count; i++) bias[i] = mask[row * mask_step + start + i];
      if (highest(bias) < HIDDEN) {
        for (int g = 0; g < GROUP; g++) store(weights + g * padded + start, all(2 * HIDDEN));
        continue;
      }
      seen = start + LANES;
      Vector products[GROUP][LANES];
      for (int64_t i = 0; i < LANES; i++) {
        const int64_t place = (start + (i < count ? i : count - 1)) * HEAD;
        for (int c = 0; c < CHUNKS; c++) {
          __builtin_prefetch(values + own + place + c * LANES, 0, 2);
          const Vector part = load(keys + own + place + c * LANES);
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
      const float most = highest(top[g]);
      Vector sum = all(0);
      for (int64_t start = 0; start < seen; start += LANES) {
        const Vector scores = load(weights + g * padded + start);
        const Vector weight = scores < HIDDEN ? all(0) : exponential(scores - most);
        store(weights + g * padded + start, weight);
        sum += weight;
      }
      share[g] = seen ? 1 / total(sum) : 0;
    }
    Vector mixed[GROUP][CHUNKS] = {};
    for (int64_t column = 0; column < (seen < width ? seen : width); column++) {
      for (int c = 0; c < CHUNKS; c++) {
        __builtin_prefetch(keys + coming + column * HEAD + c * LANES, 0, 2);
        const Vector part = load(values + own + column * HEAD + c * LANES);
        for (int g = 0; g < GROUP; g++) mixed[g][c] += weights[g * padded + column] * part;
      }
    }
    for (int g = 0; g < GROUP; g++)
      for (int c = 0; c < CHUNKS; c++) store(out + (pair * GROUP + g) * HEAD + c * LANES, mixed[g][c] * share[g]);
  });
}

// out = weight * x * shrink, shrink = 1 / sqrt(mean of x^2 + epsilon). x, out: [rows, width]; shrink: [rows].
void rms_norm(const float* x, const float* weight, float* out, float* shrink, int64_t rows, int64_t width,
              float epsilon, int64_t num_threads) {
  parallel(rows, num_threads, [=](int64_t row) {
    const float* from = x + row * width;
    Vector squares = all(0);
    for (int64_t i = 0; i < width; i += LANES) squares += load(from + i) * load(from + i);
    const float by = shrink[row] = 1 / std::sqrt(total(squares) / width + epsilon);
    for (int64_t i = 0; i < width; i += LANES) store(out + row * width + i, load(weight + i) * (load(from + i) * by));
  });
}

// Gradients of `rms_norm`. by_x: gradient of x, [rows, width]. by_weight: [num_threads, width], one sum per thread.
void rms_norm_backward(const float* slope, const float* x, const float* weight, const float* shrink, float* by_x,
                       float* by_weight, int64_t rows, int64_t width, int64_t num_threads) {
  parallel(num_threads, num_threads, [=](int64_t thread) {
    float* sums = by_weight + thread * width;
    for (int64_t i = 0; i < width; i++) sums[i] = 0;
    for (int64_t row = rows * thread / num_threads; row < rows * (thread + 1) / num_threads; row++) {
      const float by = shrink[row];
      Vector along = all(0);  // the part of the gradient that only changes the norm of x
      for (int64_t i = row * width, j = 0; j < width; i += LANES, j += LANES) {
        const Vector product = load(slope + i) * load(x + i);
        along += product * load(weight + j);
        store(sums + j, load(sums + j) + product * by);
      }
      const float length = total(along) * by * by * by / width;
      for (int64_t i = row * width, j = 0; j < width; i += LANES, j += LANES)
        store(by_x + i, load(slope + i) * load(weight + j) * by - load(x + i) * length);
    }
  });
}

// out = silu(gate) * up, for `count` blocks of LANES numbers.
void swiglu(const float* gate, const float* up, float* out, int64_t count, int64_t num_threads) {
  parallel(count, num_threads, [=](int64_t block) {
    const Vector x = load(gate + block * LANES);
    store(out + block * LANES, x * logistic(x) * load(up + block * LANES));
  });
}

// Gradients of `swiglu`: by_gate and by_up, in the shape of out. slope: gradient of out.
void swiglu_backward(const float* slope, const float* gate, const float* up, float* by_gate, float* by_up,
                     int64_t count, int64_t num_threads) {
  parallel(count, num_threads, [=](int64_t block) {
    const int64_t i = block * LANES;
    const Vector x = load(gate + i), share = logistic(x), opened = x * share, wanted = load(slope + i);
    store(by_up + i, wanted * opened);
    store(by_gate + i, wanted * load(up + i) * (share + opened * (1.f - share)));
  });
}

// RoPE: rotate numbers i and i + width / 2 of each head. x, out: [rows, heads, width]; cosine, sine: [angles, width].
// Row i of x uses row i modulo `angles` of cosine and sine.
void rope(const float* x, const float* cosine, const float* sine, float* out, int64_t rows, int64_t heads,
          int64_t width, int64_t angles, int64_t num_threads) {
  const int64_t half = width / 2;
  parallel(rows, num_threads, [=](int64_t row) {
    const float *c = cosine + row % angles * width, *s = sine + row % angles * width;
    for (int64_t head = row * heads; head < (row + 1) * heads; head++) {
      const float* from = x + head * width;
      float* __restrict to = out + head * width;
      for (int64_t i = 0; i < half; i++) {
        to[i] = from[i] * c[i] - from[half + i] * s[i];
        to[half + i] = from[half + i] * c[half + i] + from[i] * s[half + i];
      }
    }
  });
}

}  // extern "C"
