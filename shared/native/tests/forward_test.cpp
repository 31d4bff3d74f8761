// The pass on a tiny model: same bits whatever the batch, no allocation once warm, bad files and nodes
// refused.
#include <atomic>
#include <cstdlib>
#include <new>

#include "core/isa.hpp"
#include "tests/engine_fixture.hpp"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace ringline::test {

constexpr int64_t kSink = 5, kRing = 64, kWindow = 33;

void check_batches(const TinyModel& tiny, const std::string& isa, KvFormat format) {
  std::vector<float> expected;
  for (const int threads : {1, 2, 3}) {
    const auto model = tiny.load(threads, isa);
    const std::vector<int32_t> tokens = some_tokens(*model, 150);
    for (const size_t chunk : {1, 5, 16, 31}) {
      TinyPool pool(*model, 8, format);
      Scratch scratch(model, 40, 40, format);
      const std::vector<float> logits =
          run_chunks(scratch, pool.sequence(kSink, kRing, kWindow), tokens, chunk);
      if (expected.empty()) expected = logits;
      check(logits == expected, tiny.spec.architecture + " " + isa + ": other bits with " +
                                    std::to_string(threads) + " threads and chunks of " +
                                    std::to_string(chunk));
    }
  }
}

// A scratch takes only sequences of a pool with its own format.
void check_formats(const TinyModel& tiny) {
  const auto model = tiny.load(1);
  for (const auto [ours, theirs] :
       {std::pair(KvFormat::kF16, KvFormat::kInt8), std::pair(KvFormat::kInt8, KvFormat::kF16)}) {
    TinyPool pool(*model, 8, theirs);
    Scratch scratch(model, 8, 8, ours);
    const auto view = pool.sequence(kSink, kRing, kWindow);
    check_refused([&] { run_chunks(scratch, view, some_tokens(*model, 4), 2); }, "another format");
    check(scratch.size() == 0 && view->length() == 0, "a refused pass has changed something");
  }
}

// A pass over two sequences with branches, then commit and re-root, again and again: nothing is allocated.
void check_no_allocation(const TinyModel& tiny, KvFormat format) {
  const auto model = tiny.load(2);
  TinyPool pool(*model, 16, format);
  Scratch scratch(model, 16, 16, format);
  const std::shared_ptr<SequenceView> views[] = {pool.sequence(kSink, kRing, kWindow),
                                                 pool.sequence(0, 48, 20)};
  const std::vector<int32_t> seq = {0, 0, 1, 0, 1, 0}, tokens = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> parents = {-1, 0, -1, 0, 2, 3}, outputs = {1, 5}, path = {0, 3}, other = {0};
  int64_t before = 0;
  for (int round = 0; round < 40; ++round) {
    if (round == 2) before = allocations.load();
    scratch.clear();
    scratch.forward({views, seq, tokens, parents, outputs});
    scratch.commit(*views[0], path);
    scratch.reroot(*views[0], path);
    scratch.commit(*views[1], {other.data(), 1});
    scratch.drop(*views[1]);
  }
  const int64_t count = allocations.load() - before;
  check(count == 0, std::to_string(count) + " allocations when warm");
}

void check_bad_files(const TinyModel& tiny) {
  for (size_t i = 0; i < tiny.tensors.size(); ++i) {
    const auto load_with = [&](auto change) {
      std::vector<TensorEntry> tensors = tiny.tensors;
      change(tensors[i]);
      check_refused([&] { Model(tiny.path, tiny.spec, tensors, 1, "", {}); }, tiny.tensors[i].name);
    };
    load_with([](TensorEntry& t) { t.name += "x"; });
    load_with([](TensorEntry& t) { t.rows += 1; });
    load_with([](TensorEntry& t) { t.cols -= 32; });
    load_with([](TensorEntry& t) { t.offset = int64_t{1} << 62; });
    load_with([](TensorEntry& t) { t.offset = -64; });
    load_with([](TensorEntry& t) { t.nbytes -= 4; });
    load_with([](TensorEntry& t) { t.type = 99; });
  }
  check_refused([&] { Model("/nonexistent", tiny.spec, tiny.tensors, 1, "", {}); },
                "a file that is not there");
  check_refused([&] { tiny.load(0); }, "no thread");
  check_refused([&] { tiny.load(1, "pdp11"); }, "an unknown instruction set");
  check_refused([&] { Model(tiny.path, tiny.spec, tiny.tensors, 1, "", {100000}); },
                "a CPU that is not there");
  for (const auto change : {+[](ModelSpec& s) { s.n_kv_head = 3; }, +[](ModelSpec& s) { s.n_ff = 0; },
                            +[](ModelSpec& s) { s.head_dim = 33; }, +[](ModelSpec& s) { s.n_embd = 1 << 30; },
                            +[](ModelSpec& s) { s.architecture = "gpt"; },
                            +[](ModelSpec& s) { s.rms_eps = 0; }, +[](ModelSpec& s) { s.rope_base = 0; }}) {
    ModelSpec spec = tiny.spec;
    change(spec);
    check_refused([&] { Model(tiny.path, spec, tiny.tensors, 1, "", {}); }, "a spec that cannot be");
  }
}

}  // namespace ringline::test

int main() {
  using namespace ringline::test;
  for (const char* architecture : {"llama", "qwen2"}) {
    const TinyModel tiny(architecture);
    for (const ringline::KvFormat format : {ringline::KvFormat::kF16, ringline::KvFormat::kInt8}) {
      for (const std::string& isa : ringline::isa_names()) check_batches(tiny, isa, format);
      check_no_allocation(tiny, format);
    }
    check_formats(tiny);
    check_bad_files(tiny);
  }
  return 0;
}
