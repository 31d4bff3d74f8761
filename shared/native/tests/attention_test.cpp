// The kernels around the products, every variant against double precision, and positions without rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/engine_isa.hpp"
#include "core/isa.hpp"
#include "core/rope.hpp"
#include "kernels/engine_kernels.hpp"
#include "tests/engine_fixture.hpp"

namespace ringline::test {

constexpr int64_t kHead = 64, kTiles = 9;

struct Case {
  std::vector<uint16_t> plane;  // K, then V, of kTiles blocks
  std::vector<float> keys, values, query, query_sink;
  std::vector<KvSegment> segments;
  std::vector<std::pair<int64_t, bool>> order;  // (slot, sink) in logical order
};

float half_value(std::mt19937& rng) {
  return static_cast<float>(static_cast<int>(rng() % 4096) - 2048) / 1024.0f;
}

Case make_case(const EngineKernels& kernels, int64_t group, uint32_t seed) {
  std::mt19937 rng(seed);
  Case c;
  c.plane.resize(static_cast<size_t>(kTiles * 2 * 16 * kHead));
  c.keys.resize(static_cast<size_t>(kTiles * 16 * kHead));
  c.values.resize(c.keys.size());
  for (float& x : c.keys) x = half_value(rng);
  for (float& x : c.values) x = half_value(rng);
  for (int64_t slot = 0; slot < kTiles * 16; ++slot) {
    uint16_t* tile = c.plane.data() + slot / 16 * 2 * 16 * kHead;
    kernels.to_half(c.keys.data() + slot * kHead, kHead, tile + slot % 16, 16);
    kernels.to_half(c.values.data() + slot * kHead, kHead, tile + 16 * kHead + slot % 16 * kHead, 1);
  }
  for (auto* query : {&c.query, &c.query_sink}) {
    query->resize(static_cast<size_t>(group * kHead));
    for (float& x : *query) x = half_value(rng) / 4;
  }
  for (const int64_t tile : {3, 0, 8, 1, 5, 2, 7}) {
    const uint32_t mask = rng() % 3 == 0 ? 0xffff : (rng() & 0xffff) | 1u << (rng() % 16);
    const bool sink = c.segments.size() < 2;
    c.segments.push_back({c.plane.data() + tile * 2 * 16 * kHead, mask, sink});
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

  Work(const Case& c, int64_t group)
      : scores(static_cast<size_t>(group * score_stride(static_cast<int64_t>(c.order.size()))), NAN),
        out(static_cast<size_t>(group * kHead), NAN) {
    task = {c.segments.data(),
            static_cast<int64_t>(c.segments.size()),
            static_cast<int64_t>(c.order.size()),
            0,
            16 * kHead,
            kHead,
            group,
            c.query.data(),
            c.query_sink.data(),
            scores.data(),
            out.data()};
  }
};

std::vector<float> attend(const EngineKernels& kernels, const Case& c, int64_t group) {
  Work work(c, group);
  kernels.attend(&work.task, 1);
  return work.out;
}

void check_attention(const EngineKernels& kernels, const std::string& isa) {
  for (int64_t group = 1; group <= 9; ++group) {
    const Case c = make_case(kernels, group, static_cast<uint32_t>(group));
    const std::vector<float> out = attend(kernels, c, group);
    for (int64_t head = 0; head < group; ++head) {
      const std::vector<double> expected = expected_of(c, head);
      for (int64_t d = 0; d < kHead; ++d) {
        const double error =
            std::abs(out[static_cast<size_t>(head * kHead + d)] - expected[static_cast<size_t>(d)]);
        check(error < 1e-5, isa + ": attention is off by " + std::to_string(error));
      }
    }
  }
}

// The place of the keys must not matter: the same keys, one per block, in blocks of their own.
void check_placement(const EngineKernels& kernels, const std::string& isa) {
  const Case c = make_case(kernels, 3, 11);
  Case spread = c;
  spread.segments.clear();
  for (const auto& [slot, sink] : c.order) {
    spread.segments.push_back({c.plane.data() + slot / 16 * 2 * 16 * kHead, 1u << (slot % 16), sink});
  }
  check(attend(kernels, c, 3) == attend(kernels, spread, 3), isa + ": attention depends on where keys lie");
}

// Tasks of one call do not change each other, be their contexts of one run of segments or of several.
void check_company(const EngineKernels& kernels, const std::string& isa) {
  std::vector<Case> cases;
  for (uint32_t seed = 20; seed < 20 + kMaxAttended; ++seed) {
    Case c = make_case(kernels, 2, seed);
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
  for (const Case& c : cases) tasks.push_back(works.emplace_back(c, 2).task);
  kernels.attend(tasks.data(), static_cast<int64_t>(tasks.size()));
  for (size_t i = 0; i < cases.size(); ++i) {
    check(works[i].out == attend(kernels, cases[i], 2), isa + ": attention depends on its company");
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
  std::vector<uint16_t> a(x.size()), b(x.size());
  kernels.to_half(x.data(), static_cast<int64_t>(x.size()), a.data(), 1);
  reference.to_half(x.data(), static_cast<int64_t>(x.size()), b.data(), 1);
  check(a == b, isa + ": half precision rounds in another way");
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
    check_attention(kernels, isa);
    check_placement(kernels, isa);
    check_company(kernels, isa);
    check_elementwise(kernels, isa);
    check_argmax(kernels, isa);
    check_half(ringline::engine_kernels("portable"), kernels, isa);
  }
  check_rope();
  return 0;
}
