// Vectors of LANES numbers, and rows divided among threads: what the kernels are made of.

#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

namespace {

constexpr int LANES = 16;

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Whole __attribute__((vector_size(4 * LANES)));

inline Vector load(const float* from) {
  Vector x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

inline void store(float* to, Vector x) { std::memcpy(to, &x, sizeof x); }

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

// work(first, last) for all of `count` in as many parts as there are threads.
template <class Work>
void divided(int64_t count, int64_t num_threads, const Work& work) {
  std::vector<std::thread> others;
  for (int64_t n = 1; n < num_threads; n++)
    others.emplace_back([=, &work] { work(count * n / num_threads, count * (n + 1) / num_threads); });
  work(int64_t{0}, count / num_threads);
  for (auto& other : others) other.join();
}

}  // namespace
