// The kernels around the products, every variant against double precision, and positions without rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/engine_isa.hpp"
#include "core/isa.hpp"
#include "core/kv_pool.hpp"
#include "core/rope.hpp"
#include "kernels/engine_kernels.hpp"
#include "tests/engine_fixture.hpp"

namespace ringline::test {

constexpr int64_t kHead = 64, kTiles = 9;

// What the kernels of one instruction set do with one format.
struct Subject {
  const EngineKernels& table;
  KvFormat format;
  std::string name;

  const KvKernels& kv() const { return table.kv(format); }
  Plane plane() const { return {1, 1, kHead, format}; }
};

struct Case {
  std::vector<float> memory;  // kTiles blocks, their bytes
  int64_t tile_bytes;
  std::vector<float> keys, values, query, query_sink;  // keys and values as the format reads them
  std::vector<KvSegment> segments;
  std::vector<std::pair<int64_t, bool>> order;  // (slot, sink) in logical order

  std::byte* tile(int64_t slot) {
    return reinterpret_cast<std::byte*>(memory.data()) + slot / 16 * tile_bytes;
  }
};

float half_value(std::mt19937& rng) {
  return static_cast<float>(static_cast<int>(rng() % 4096) - 2048) / 1024.0f;
}

// What int8 storage makes of a vector, by the definition.
void round_to_int8(float* x) {
  float largest = 0;
  for (int64_t d = 0; d < kHead; ++d) largest = std::max(largest, std::abs(x[d]));
  const float scale = largest / 127.0f;
  for (int64_t d = 0; d < kHead; ++d) x[d] = scale == 0 ? 0 : std::nearbyint(x[d] / scale) * scale;
}

Case make_case(const Subject& subject, int64_t group, uint32_t seed) {
  std::mt19937 rng(seed);
  Case c;
  const Plane plane = subject.plane();
  c.tile_bytes = plane.bytes();
  c.memory.resize(static_cast<size_t>(kTiles * c.tile_bytes) / sizeof(float), NAN);
  c.keys.resize(static_cast<size_t>(kTiles * 16 * kHead));
  c.values.resize(c.keys.size());
  for (float& x : c.keys) x = half_value(rng);
  for (float& x : c.values) x = half_value(rng);
  for (int64_t slot = 0; slot < kTiles * 16; ++slot) {
    float *key = c.keys.data() + slot * kHead, *value = c.values.data() + slot * kHead;
    subject.kv().store_key(key, kHead, c.tile(slot) + plane.k_offset(0, 0), slot % 16);
    subject.kv().store_value(value, kHead, c.tile(slot) + plane.v_offset(0, 0), slot % 16);
    if (subject.format == KvFormat::kF16) continue;  // the numbers are halves
    round_to_int8(key);
    round_to_int8(value);
  }
  for (auto* query : {&c.query, &c.query_sink}) {
    query->resize(static_cast<size_t>(group * kHead));
    for (float& x : *query) x = half_value(rng) / 4;
  }
  for (const int64_t tile : {3, 0, 8, 1, 5, 2, 7}) {
    const uint32_t mask = rng() % 3 == 0 ? 0xffff : (rng() & 0xffff) | 1u << (rng() % 16);
    const bool sink = c.segments.size() < 2;
    c.segments.push_back({c.tile(tile * 16), mask, sink});
    for (int lane = 0; lane < 16; ++lane) {
      if (mask >> lane & 1) c.order.emplace_back(tile * 16 + lane, sink);
    }
  }
  return c;
}

int64_t count_sink(const Case& c) {
  return std::count_if(c.order.begin(), c.order.end(), [](const auto& key) { return key.second; });
}

std::vector<double> expected_of(const Case& c, int64_t head) {
  std::vector<double> weights;
  double largest = -std::numeric_limits<double>::infinity();
  for (const auto& [slot, sink] : c.order) {
    const float* query = (sink ? c.query_sink : c.query).data() + head * kHead;
    double score = 0;
    for (int64_t d = 0; d < kHead; ++d)
      score += double{query[d]} * c.keys[static_cast<size_t>(slot * kHead + d)];
    weights.push_back(score);
    largest = std::max(largest, score);
  }
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - largest);
  std::vector<double> out(static_cast<size_t>(kHead));
  for (size_t i = 0; i < weights.size(); ++i) {
    for (int64_t d = 0; d < kHead; ++d) {
      out[static_cast<size_t>(d)] +=
          weights[i] / sum * c.values[static_cast<size_t>(c.order[i].first * kHead + d)];
    }
  }
  return out;
}

// Memory of one task.
struct Work {
  AttentionTask task;
  std::vector<float> scores, out;

  Work(const Subject& subject, const Case& c, int64_t group)
      : scores(static_cast<size_t>(group * score_stride(static_cast<int64_t>(c.order.size()))), NAN),
        out(static_cast<size_t>(group * kHead), NAN) {
    task = {c.segments.data(),
            static_cast<int64_t>(c.segments.size()),
            static_cast<int64_t>(c.order.size()),
            subject.plane().k_offset(0, 0),
            subject.plane().v_offset(0, 0),
            kHead,
            group,
            c.query.data(),
            c.query_sink.data(),
            scores.data(),
            out.data()};
  }
};

std::vector<float> attend(const Subject& subject, const Case& c, int64_t group) {
  Work work(subject, c, group);
  subject.kv().attend(&work.task, 1);
  return work.out;
}

void check_attention(const Subject& subject) {
  for (int64_t group = 1; group <= 9; ++group) {
    const Case c = make_case(subject, group, static_cast<uint32_t>(group));
    const std::vector<float> out = attend(subject, c, group);
    for (int64_t head = 0; head < group; ++head) {
      const std::vector<double> expected = expected_of(c, head);
      for (int64_t d = 0; d < kHead; ++d) {
        const double error =
            std::abs(out[static_cast<size_t>(head * kHead + d)] - expected[static_cast<size_t>(d)]);
        check(error < 1e-5, subject.name + ": attention is off by " + std::to_string(error));
      }
    }
  }
}

// The place of the keys must not matter: the same keys, one per block, in blocks of their own.
void check_placement(const Subject& subject) {
  Case c = make_case(subject, 3, 11);
  Case spread = c;
  spread.segments.clear();
  for (const auto& [slot, sink] : c.order) {
    spread.segments.push_back({c.tile(slot), 1u << (slot % 16), sink});
  }
  check(attend(subject, c, 3) == attend(subject, spread, 3),
        subject.name + ": attention depends on where keys lie");
}

// Tasks of one call do not change each other, be their contexts of one run of segments or of several.
void check_company(const Subject& subject) {
  std::vector<Case> cases;
  for (uint32_t seed = 20; seed < 20 + kMaxAttended; ++seed) {
    Case c = make_case(subject, 2, seed);
    const Case once = c;
    for (uint32_t repeat = 0; repeat < seed % 4 * 5; ++repeat) {
      c.segments.insert(c.segments.end(), once.segments.begin() + 2, once.segments.end());
      c.order.insert(c.order.end(), once.order.begin() + count_sink(once), once.order.end());
    }
    cases.push_back(std::move(c));
  }
  std::vector<Work> works;
  std::vector<AttentionTask> tasks;
  works.reserve(cases.size());
  for (const Case& c : cases) tasks.push_back(works.emplace_back(subject, c, 2).task);
  subject.kv().attend(tasks.data(), static_cast<int64_t>(tasks.size()));
  for (size_t i = 0; i < cases.size(); ++i) {
    check(works[i].out == attend(subject, cases[i], 2), subject.name + ": attention depends on its company");
  }
}

void check_elementwise(const EngineKernels& kernels, const std::string& isa) {
  std::vector<float> gate, up(4096, 1.0f), out(4096), weight(4096, 0.5f);
  for (int i = 0; i < 4096; ++i) gate.push_back(static_cast<float>(i - 2048) / 16.0f);
  kernels.silu_mul(gate.data(), up.data(), 4096, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const double expected = gate[i] / (1.0 + std::exp(-double{gate[i]}));
    check(std::abs(out[i] - expected) <= 1e-6 * std::abs(expected) + 1e-35, isa + ": silu is off");
  }
  kernels.rms_norm(gate.data(), weight.data(), 4096, 1e-5f, out.data());
  double squares = 0;
  for (const float x : gate) squares += double{x} * x;
  const double scale = 0.5 / std::sqrt(squares / 4096 + 1e-5);
  for (size_t i = 0; i < out.size(); ++i) {
    check(std::abs(out[i] - gate[i] * scale) < 1e-5, isa + ": the norm is off");
  }
}

void check_argmax(const EngineKernels& kernels, const std::string& isa) {
  for (int64_t n = 1; n < 70; ++n) {
    std::vector<float> x(static_cast<size_t>(n), -3.0f);
    for (int64_t first = 0; first < n; ++first) {
      x.assign(static_cast<size_t>(n), -3.0f);
      x[static_cast<size_t>(first)] = x.back() = -1.0f;
      check(kernels.argmax(x.data(), n) == first, isa + ": argmax is not the first of the largest");
    }
  }
}

// The block that holds x as its first value.
std::vector<std::byte> stored(const EngineKernels& kernels, KvFormat format, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> head(static_cast<size_t>(kv_head_bytes(format, n)));
  kernels.kv(format).store_value(x.data(), n, head.data(), 0);
  return head;
}

void check_softmax(const EngineKernels& kernels, const std::string& isa) {
  for (const int64_t n : {kMaximumOf, 3 * kMaximumOf, 100 * kMaximumOf}) {
    std::vector<float> x(static_cast<size_t>(n)), maxima(static_cast<size_t>(n / kMaximumOf));
    for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = static_cast<float>((i * 7919) % 1000) / 40.0f;
    const float top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float value : x) sum += std::exp(double{value} - double{top});
    const double got = kernels.sum_exp(x.data(), n, top);
    check(std::abs(got - sum) <= 1e-6 * sum, isa + ": the sum of a softmax is off");
    kernels.maxima(x.data(), n, maxima.data());
    for (size_t i = 0; i < maxima.size(); ++i) {
      const auto from = x.begin() + static_cast<std::ptrdiff_t>(i) * kMaximumOf;
      check(maxima[i] == *std::max_element(from, from + kMaximumOf), isa + ": a maximum is wrong");
    }
  }
}

// Conversion to half rounds to nearest even, as the hardware of any variant does.
void check_half(const EngineKernels& reference, const EngineKernels& kernels, const std::string& isa) {
  std::mt19937 rng(5);
  std::vector<float> x(1 << 14);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint32_t bits =
        i < 4096 ? static_cast<uint32_t>(0x38000000 + i * 4096) : static_cast<uint32_t>(rng());
    std::memcpy(&x[i], &bits, sizeof bits);
    if (std::isnan(x[i])) x[i] = 0.0f;
  }
  check(stored(kernels, KvFormat::kF16, x) == stored(reference, KvFormat::kF16, x),
        isa + ": half precision rounds in another way");
}

// A stored number is off by half a scale at most, the largest one by its own rounding; every variant stores
// the same bytes. Also for zeros, for the smallest floats and for the largest.
void check_int8(const EngineKernels& reference, const EngineKernels& kernels, const std::string& isa) {
  std::mt19937 rng(6);
  std::normal_distribution<float> normal;
  for (const float size : {0.0f, 1e-44f, 1e-37f, 1e-3f, 1.0f, 300.0f, 1e37f}) {
    std::vector<float> x(static_cast<size_t>(kHead));
    for (float& value : x) value = size * normal(rng);
    const std::vector<std::byte> bytes = stored(kernels, KvFormat::kInt8, x);
    check(bytes == stored(reference, KvFormat::kInt8, x), isa + ": int8 rounds in another way");
    float scale, largest = 0;
    std::memcpy(&scale, bytes.data() + kv_scales_offset(KvFormat::kInt8, kHead), sizeof scale);
    for (const float value : x) largest = std::max(largest, std::abs(value));
    for (size_t d = 0; d < x.size(); ++d) {
      const double error = std::abs(x[d] - double{scale} * static_cast<int8_t>(bytes[d]));
      check(error <= largest / 127.0 * 0.500001 + 1.5e-36, isa + ": int8 is off by " + std::to_string(error));
    }
  }
}

// Sine and cosine of a distance do not depend on where it is measured.
void check_rope() {
  const Rope rope(1e6, 64);
  const auto half = static_cast<size_t>(rope.half());
  const auto at = [&](int64_t position) {
    std::vector<float> angles(2 * half);
    rope.angles(position, angles.data(), angles.data() + half);
    return angles;
  };
  for (const int64_t base : {int64_t{1} << 20, (int64_t{1} << 52) + 12345}) {
    const std::vector<float> from = at(base), to = at(base + 77), expected = at(77);
    for (size_t i = 0; i < half; ++i) {
      const double cosine = double{to[i]} * from[i] + double{to[half + i]} * from[half + i];
      check(std::abs(cosine - expected[i]) < 3e-7, "a distance of 77 is another angle far away");
    }
  }
  check(at(0) == std::vector<float>([&] {
          std::vector<float> none(2 * half, 1.0f);
          std::fill(none.begin() + static_cast<int64_t>(half), none.end(), 0.0f);
          return none;
        }()),
        "position 0 is not the identity");
}

}  // namespace ringline::test

int main() {
  using namespace ringline::test;
  for (const std::string& isa : ringline::isa_names()) {
    const ringline::EngineKernels& kernels = ringline::engine_kernels(isa);
    for (const Subject& subject : {Subject{kernels, ringline::KvFormat::kF16, isa + " f16"},
                                   Subject{kernels, ringline::KvFormat::kInt8, isa + " int8"}}) {
      check_attention(subject);
      check_placement(subject);
      check_company(subject);
    }
    check_elementwise(kernels, isa);
    check_argmax(kernels, isa);
    check_softmax(kernels, isa);
    check_half(ringline::engine_kernels("portable"), kernels, isa);
    check_int8(ringline::engine_kernels("portable"), kernels, isa);
  }
  check_rope();
  return 0;
}
